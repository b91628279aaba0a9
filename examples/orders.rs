//! Keys and values of your own types: an order book that is written, dropped, opened again and read, by
//! customer and in order of time.
//!
//! ```console
//! cargo run --release --features derive --example orders
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pmindex::{FpTree, Key, Pool, PoolOptions, Storable};

/// The customer and the time of an order. The first part sorts first, so the orders of a customer are
/// adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
struct OrderId {
    customer: Customer,
    at: SystemTime,
}

/// Companies sort before people, in the order of the variants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
enum Customer {
    Company { register: [u16; 3] },
    Person(String),
}

/// `bytes`: variants of any size may be added later.
#[derive(Clone, Debug, PartialEq, Storable)]
#[storable(bytes)]
enum Order {
    Open { items: [Option<Item>; 2], note: Option<String> },
    Paid { cents: u128, with: Card },
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Storable)]
struct Item {
    article: u32,
    kilograms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Storable)]
enum Card {
    Debit,
    Credit { months: u8 },
}

type Orders = FpTree<OrderId, Order>;

fn at(minute: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minute)
}

fn company() -> Customer {
    Customer::Company { register: [12, 3456, 7] }
}

fn ada() -> Customer {
    Customer::Person("Ada".into())
}

fn records() -> Vec<(OrderId, Order)> {
    let item = Item { article: 4711, kilograms: 0.25 };
    let open = Order::Open { items: [Some(item), None], note: Some("ring twice".into()) };
    let paid = Order::Paid { cents: 129_900, with: Card::Credit { months: 12 } };
    vec![
        (OrderId { customer: company(), at: at(30) }, Order::Cancelled),
        (OrderId { customer: ada(), at: at(10) }, open),
        (OrderId { customer: ada(), at: at(20) }, paid),
        (OrderId { customer: ada(), at: at(25) }, Order::Paid { cents: 5, with: Card::Debit }),
    ]
}

/// Writes the orders, the last one first; each is durable when `insert` returns.
fn write(path: &Path, options: &PoolOptions) -> Result<(), Box<dyn Error>> {
    let pool = Arc::new(Pool::create(path, options)?);
    let orders = Orders::create(&pool, "orders")?;
    for (id, order) in records().iter().rev() {
        orders.insert(id, order)?;
    }
    Ok(()) // the index and the pool are dropped, not closed
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("orders.pool");
    // On a disk, `write_back(false)` survives a crash of the service, not of the machine.
    let options = PoolOptions::new().write_back(false);
    write(&path, &options)?;

    let pool = Arc::new(Pool::open(&path, &options)?);
    let orders = Orders::open(&pool, "orders")?;
    let all: Vec<_> = orders.iter().collect::<Result<_, _>>()?;
    assert_eq!(all, records()); // in order of the keys

    let of_ada = OrderId { customer: ada(), at: at(0) }..OrderId { customer: ada(), at: at(25) };
    for item in orders.range(of_ada) {
        let (id, order) = item?;
        println!("{:?} ordered at {:?}: {order:?}", id.customer, id.at);
    }
    let first = OrderId { customer: ada(), at: at(10) };
    let Some(Order::Open { items: [Some(item), None], note: Some(note) }) = orders.get(&first)?
    else {
        return Err("an open order with an item and a note".into());
    };
    println!("article {}, {} kg; {note}", item.article, item.kilograms);
    orders.close()?;

    // Opening with other types is refused, so data is never read as another type.
    let refused = FpTree::<OrderId, String>::open(&pool, "orders");
    println!("{}", refused.expect_err("another type of values"));
    Ok(())
}

#[cfg(test)]
#[test]
fn it_holds_what_it_says() {
    main().expect("every step works");
}
