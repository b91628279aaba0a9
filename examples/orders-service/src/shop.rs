//! The state: customers and orders, each with a second index, and the keys of answered requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmindex::{
    ExpiringMap, Index, Map, Missing, Postcard, Storable, Store, StoreError, StoreOptions,
};
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The time for which a request with an `Idempotency-Key` is remembered.
const REMEMBERED: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, PartialEq, Eq, Storable, Serialize)]
pub(crate) struct Customer {
    pub(crate) name: String,
    pub(crate) email: String,
    /// The sum of the orders that are not cancelled, in cents: changed in the transactions that change them.
    pub(crate) spent: u64,
}

/// A vector is not [`Storable`]; wrapped in [`Postcard`], any type that `serde` serializes is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer: u64,
    pub(crate) items: Vec<Item>,
    /// In cents.
    pub(crate) total: u64,
    pub(crate) at_ms: u64,
    pub(crate) is_cancelled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) article: String,
    pub(crate) quantity: u32,
    /// The price of one, in cents.
    pub(crate) price: u32,
}

/// The sales of the shop at one moment.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sales {
    pub(crate) customers: u64,
    pub(crate) orders: u64,
    pub(crate) cancelled: u64,
    /// The sum of the orders that are not cancelled, in cents.
    pub(crate) total: u64,
    /// `true` if each customer's sum agrees with their orders, and the second index has exactly these.
    pub(crate) agrees: bool,
    /// The ten customers who spent most.
    pub(crate) best: Vec<Spender>,
}

/// A customer and their sum in cents.
#[derive(Debug, Serialize)]
pub(crate) struct Spender {
    pub(crate) customer: u64,
    pub(crate) spent: u64,
}

/// The store and its maps.
pub(crate) struct Shop {
    store: Store,
    customers: Map<u64, Customer>,
    by_email: Map<String, u64>,
    pub(crate) orders: Map<u64, Postcard<Order>>,
    /// The second index of the orders: by customer.
    by_customer: Map<(u64, u64), ()>,
    /// By `Idempotency-Key`: the order that was made.
    answered: ExpiringMap<String, u64>,
    /// The next unused number. Outside of the store, so that two orders do not conflict over it.
    next_customer: AtomicU64,
    next_order: AtomicU64,
}

impl Shop {
    /// Opens the shop, or creates it.
    pub(crate) fn open(path: &std::path::Path, options: &StoreOptions) -> Result<Self, StoreError> {
        let store = Store::open_with(path, options)?;
        let customers = store.map::<u64, Customer>("customers")?;
        let orders = store.map::<u64, Postcard<Order>>("orders")?;
        let last = |entry: Option<u64>| AtomicU64::new(entry.unwrap_or(0) + 1);
        Ok(Self {
            next_customer: last(customers.last_key_value()?.map(|(id, _)| id)),
            next_order: last(orders.last_key_value()?.map(|(number, _)| number)),
            by_email: store.map("customers by email")?,
            by_customer: store.map("orders by customer")?,
            answered: store.expiring_map("answered requests")?,
            customers,
            orders,
            store,
        })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn answered(&self) -> &ExpiringMap<String, u64> {
        &self.answered
    }

    /// Closes the maps, then the store: a closed store needs no recovery.
    pub(crate) fn close(self) -> Result<(), StoreError> {
        let Self { store, customers, by_email, orders, by_customer, answered, .. } = self;
        drop((customers, by_email, orders, by_customer, answered));
        store.close()
    }

    /// Adds a customer, whose address must be unique.
    pub(crate) fn add_customer(&self, name: &str, email: &str) -> Result<u64, Refusal> {
        let id = self.next_customer.fetch_add(1, Relaxed);
        let customer = Customer { name: name.into(), email: email.into(), spent: 0 };
        self.store.transaction(|tx| {
            if tx.try_insert(&self.by_email, email, &id)?.is_err() {
                return Err(Refusal::EmailTaken);
            }
            Ok(tx.put(&self.customers, &id, &customer)?)
        })?;
        Ok(id)
    }

    pub(crate) fn customer(&self, id: u64) -> Result<Customer, Refusal> {
        self.customers.get(&id)?.ok_or(Refusal::NoSuchCustomer(id))
    }

    /// Returns the customer with an address, and their number, with two lookups; a customer is never removed.
    pub(crate) fn customer_by_email(&self, email: &str) -> Result<(u64, Customer), Refusal> {
        let id = self.by_email.get(email)?.ok_or(Refusal::NoSuchEmail)?;
        Ok((id, self.customer(id)?))
    }

    /// Makes an order, in four or five maps; returns its number, and `true` if this request made it. A
    /// repeated request, known by its key, makes none.
    pub(crate) fn add_order(
        &self,
        customer: u64,
        items: &[Item],
        request: Option<&str>,
    ) -> Result<(u64, bool), Refusal> {
        let new = self.next_order.fetch_add(1, Relaxed);
        let total = items.iter().map(|item| u64::from(item.quantity) * u64::from(item.price)).sum();
        let at_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let order = Order { customer, items: items.to_vec(), total, at_ms, is_cancelled: false };
        let order = Postcard(order);
        self.store.transaction(|tx| {
            if let Some(request) = request
                && let Some(number) = self.answered.get_in(tx, request)?
            {
                let made = tx.get(&self.orders, &number)?.ok_or(Refusal::NoSuchOrder(number))?.0;
                let is_same = made.customer == customer && made.items == items;
                return if is_same { Ok((number, false)) } else { Err(Refusal::OtherRequest) };
            }
            let mut buyer =
                tx.get(&self.customers, &customer)?.ok_or(Refusal::NoSuchCustomer(customer))?;
            buyer.spent += total;
            tx.put(&self.customers, &customer, &buyer)?;
            tx.put(&self.orders, &new, &order)?;
            tx.put(&self.by_customer, &(customer, new), &())?;
            if let Some(request) = request {
                self.answered.put_in(tx, request, &new, REMEMBERED)?;
            }
            Ok((new, true))
        })
    }

    /// Cancels an order; returns `true` if it was not cancelled before.
    pub(crate) fn cancel(&self, number: u64) -> Result<bool, Refusal> {
        self.store.transaction(|tx| {
            let Some(Postcard(mut order)) = tx.get(&self.orders, &number)? else {
                return Err(Refusal::NoSuchOrder(number));
            };
            if std::mem::replace(&mut order.is_cancelled, true) {
                return Ok(false);
            }
            let mut buyer =
                tx.get(&self.customers, &order.customer)?.ok_or(StoreError::from(Missing))?;
            buyer.spent -= order.total;
            tx.put(&self.customers, &order.customer, &buyer)?;
            tx.put(&self.orders, &number, &Postcard(order))?;
            Ok(true)
        })
    }

    pub(crate) fn order(&self, number: u64) -> Result<Order, Refusal> {
        Ok(self.orders.get(&number)?.ok_or(Refusal::NoSuchOrder(number))?.0)
    }

    /// Returns the orders of a customer after a given one, in order, up to a limit.
    pub(crate) fn orders_of(
        &self,
        customer: u64,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Order)>, Refusal> {
        self.customer(customer)?;
        let numbers =
            self.by_customer.range((customer, after.saturating_add(1))..=(customer, u64::MAX));
        let orders = numbers.take(most).map(|entry| {
            let ((_, number), ()) = entry?;
            Ok((number, self.order(number)?))
        });
        orders.collect()
    }

    /// Sums up everything at one moment, while other threads write.
    pub(crate) fn sales(&self) -> Result<Sales, Refusal> {
        let now = self.store.snapshot()?;
        let mut sales = Sales { agrees: true, ..Sales::default() };
        let mut spent = BTreeMap::new();
        for entry in self.orders.at(&now).range(..) {
            let (number, Postcard(order)) = entry?;
            sales.orders += 1;
            let place = (order.customer, number);
            sales.agrees &= self.by_customer.at(&now).contains_key(&place)?;
            if order.is_cancelled {
                sales.cancelled += 1;
            } else {
                sales.total += order.total;
                *spent.entry(order.customer).or_insert(0) += order.total;
            }
        }
        sales.agrees &= self.by_customer.at(&now).len()? == sales.orders;
        for entry in self.customers.at(&now).range(..) {
            let (id, customer) = entry?;
            sales.customers += 1;
            sales.agrees &= spent.get(&id).copied().unwrap_or(0) == customer.spent;
        }
        let best = spent.into_iter().map(|(customer, spent)| Spender { customer, spent });
        sales.best = best.collect();
        sales.best.sort_by_key(|best| (std::cmp::Reverse(best.spent), best.customer));
        sales.best.truncate(10);
        Ok(sales)
    }
}
