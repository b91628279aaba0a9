//! Tests the service as its clients use it: requests, errors, events, metrics, kills, a clean end.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A service process, killed when this is dropped.
struct Service {
    process: Child,
    url: String,
    greeting: String,
    agent: ureq::Agent,
    _stdout: BufReader<ChildStdout>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Service {
    fn start(store: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_orders-service"))
            .arg(store)
            .args(["--listen", "127.0.0.1:0", "--no-write-back", "--patience", "2"])
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).expect("readable");
        let address = greeting.strip_prefix("ready on ").expect("it is ready");
        let address = address.split(": ").next().expect("ADDRESS: ...");
        let url = format!("http://{address}");
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        Self { process, url, greeting, agent: config.into(), _stdout: stdout }
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn terminate(&mut self) -> bool {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it runs");
        self.process.wait().expect("it ends").success()
    }

    fn text(&self, path: &str) -> Result<(u16, String), ureq::Error> {
        let mut response = self.agent.get(format!("{}{path}", self.url)).call()?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.text(path).expect("a reply");
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// Sends text as JSON, optionally with a key of the request.
    fn send(&self, path: &str, body: &str, key: Option<&str>) -> Result<(u16, Value), ureq::Error> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        let request =
            key.iter().fold(request, |request, key| request.header("idempotency-key", *key));
        let mut response = request.send(body)?;
        Ok((response.status().as_u16(), response.body_mut().read_json()?))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(path, &body.to_string(), None).expect("a reply")
    }

    fn customer(&self, name: &str) -> u64 {
        let (status, made) =
            self.post("/customers", &json!({ "name": name, "email": format!("{name}@shop.test") }));
        assert_eq!(status, 201, "{made}");
        made["id"].as_u64().expect("a number")
    }
}

fn order(customer: u64, quantity: u64, price: u64) -> Value {
    json!({ "customer": customer, "items": [{ "article": "pear", "quantity": quantity, "price": price }] })
}

#[test]
fn orders_are_made_found_and_cancelled() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = Service::start(&dir.path().join("shop.pool"));
    let (ada, bob) = (service.customer("ada"), service.customer("bob"));
    assert_eq!(service.get("/customers?email=bob@shop.test").1["id"], bob);

    let (status, first) = service.post("/orders", &order(ada, 2, 150));
    assert_eq!(status, 201);
    let again =
        || service.send("/orders", &order(ada, 1, 700).to_string(), Some("k1")).expect("a reply");
    let (status, second) = again();
    assert_eq!((status, again()), (201, (200, second.clone())), "the same request makes one order");
    assert_eq!(service.post("/orders", &order(bob, 3, 100)).0, 201);
    let (status, found) = service.get(&format!("/orders/{}", first["id"]));
    assert_eq!(
        (status, &found["total"], &found["is_cancelled"]),
        (200, &json!(300), &json!(false))
    );

    let of_ada = service.get(&format!("/customers/{ada}/orders")).1;
    let ids = |page: &Value| -> Vec<Value> {
        page.as_array().expect("a list").iter().map(|order| order["id"].clone()).collect()
    };
    assert_eq!(ids(&of_ada), [first["id"].clone(), second["id"].clone()]);
    let rest = service.get(&format!("/customers/{ada}/orders?after={}&limit=1", first["id"])).1;
    assert_eq!(ids(&rest), [second["id"].clone()]);

    let cancel = format!("/orders/{}/cancel", first["id"]);
    assert_eq!(service.post(&cancel, &json!(null)).1["cancelled_now"], true);
    assert_eq!(service.post(&cancel, &json!(null)).1["cancelled_now"], false);
    assert_eq!(service.get(&format!("/customers/{ada}")).1["spent"], 700);
    let sales = service.get("/sales").1;
    assert_eq!(
        sales,
        json!({ "customers": 2, "orders": 3, "cancelled": 1, "total": 1000, "agrees": true,
            "best": [{ "customer": ada, "spent": 700 }, { "customer": bob, "spent": 300 }] })
    );
}

#[test]
fn bad_input_is_told_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = Service::start(&dir.path().join("shop.pool"));
    let ada = service.customer("ada");
    let many = "k".repeat(101);
    assert_eq!(
        service.send("/orders", &order(ada, 1, 1).to_string(), Some("k")).expect("a reply").0,
        201
    );
    for (path, body, key, status, error) in [
        ("/orders", "{", None, 400, "EOF"),
        ("/orders", r#"{"customer": 1}"#, None, 422, "missing field `items`"),
        ("/orders", r#"{"customer": 1, "items": [], "x": 1}"#, None, 422, "unknown field `x`"),
        ("/orders", r#"{"customer": 1, "items": []}"#, None, 422, "1 to 100 items"),
        ("/orders", &order(ada, 0, 1).to_string(), None, 422, "a quantity is 1 to 1000"),
        ("/orders", &order(99, 1, 1).to_string(), None, 404, "no customer 99"),
        ("/orders", &order(ada, 2, 1).to_string(), Some("k"), 422, "another order"),
        ("/orders", &order(ada, 1, 1).to_string(), Some(&many[..]), 422, "1 to 100 visible"),
        ("/orders/77/cancel", "", None, 404, "no order 77"),
        ("/customers", r#"{"name": "a", "email": "b"}"#, None, 422, "has an @"),
        ("/customers", r#"{"name": "a", "email": "ada@shop.test"}"#, None, 409, "already"),
        ("/sales", "", None, 405, "method"),
        ("/nothing", "", None, 404, "nothing is at this address"),
    ] {
        let (was, reply) = service.send(path, body, key).expect("a reply");
        let text = reply["error"].as_str().expect("a sentence");
        assert!(was == status && text.contains(error), "{path} {body}: {was} {text}");
    }
    for (path, status) in [
        ("/orders/x", 400),
        ("/orders/77", 404),
        ("/customers", 400),
        ("/customers?email=nobody", 404),
        ("/customers/1/orders?limit=0", 422),
    ] {
        assert_eq!(service.get(path).0, status, "{path}");
    }
    assert_eq!(service.get("/sales").1["orders"], 1);
}

/// Reads `count` events; returns their data and the last id.
fn events(
    service: &Service,
    after: Option<&str>,
    count: usize,
    meanwhile: impl FnOnce(),
) -> (Vec<Value>, String) {
    let request = service.agent.get(format!("{}/events", service.url));
    let request = after.iter().fold(request, |request, id| request.header("last-event-id", *id));
    let response = request.call().expect("a reply");
    assert_eq!(response.status(), 200);
    meanwhile();
    let (mut found, mut id) = (Vec::new(), String::new());
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        let line = line.expect("readable");
        if let Some(data) = line.strip_prefix("data: ") {
            found.push(serde_json::from_str(data).expect("JSON"));
        } else if let Some(position) = line.strip_prefix("id: ") {
            position.clone_into(&mut id);
        } else if line.is_empty() && found.len() == count {
            break;
        }
    }
    (found, id)
}

#[test]
fn events_go_on_where_a_client_stopped_a_kill_between() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("shop.pool");
    let mut service = Service::start(&path);
    let ada = service.customer("ada");
    let buy =
        |service: &Service, price| service.post("/orders", &order(ada, 1, price)).1["id"].clone();
    let (found, last) = events(&service, None, 2, || {
        buy(&service, 10);
        buy(&service, 20);
    });
    let totals = |events: &[Value]| -> Vec<u64> {
        events.iter().filter_map(|event| event["order"]["total"].as_u64()).collect()
    };
    assert_eq!(totals(&found), [10, 20]);
    buy(&service, 30);
    service.kill();
    let service = Service::start(&path);
    let (found, _) = events(&service, Some(&last), 2, || {
        buy(&service, 40);
    });
    assert_eq!(totals(&found), [30, 40]);
    let refused = service.agent.get(format!("{}/events", service.url)).header("last-event-id", "x");
    assert_eq!(refused.call().expect("a reply").status(), 422);
}

#[test]
fn an_operator_sees_figures_and_ends_it_cleanly() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("shop.pool");
    let mut service = Service::start(&path);
    let ada = service.customer("ada");
    for price in 1..=3 {
        assert_eq!(service.post("/orders", &order(ada, 1, price)).0, 201);
    }
    let (_, figures) = service.text("/metrics").expect("a reply");
    for line in [
        "# TYPE pmindex_store_commits_total counter",
        "pmindex_store_maps{",
        "pmindex_store_splits_total{",
        "pmindex_store_log_bytes_total{",
        r#"http_requests_total{method="POST",route="/orders",status="201"} 3"#,
        r#"http_request_seconds_count{method="POST",route="/orders"} 3"#,
    ] {
        assert!(figures.contains(line), "{line}\n{figures}");
    }
    let commits = figures.lines().find(|line| line.starts_with("pmindex_store_commits_total{"));
    assert!(commits.is_some_and(|line| line.ends_with(" 4")), "{commits:?}");
    assert!(service.text("/report").expect("a reply").1.contains("commits    4, "));

    // A stream that its client keeps open does not delay the shutdown.
    let stream = service.agent.get(format!("{}/events", service.url)).call().expect("a reply");
    assert!(service.terminate());
    let mut rest = String::new();
    let _ = stream.into_body().into_reader().read_to_string(&mut rest);
    let service = Service::start(&path);
    assert!(service.greeting.contains(": clean start"), "{}", service.greeting);
    assert_eq!(service.get("/sales").1["total"], 6);
}

#[test]
fn a_watch_ends_soon_after_its_client_has_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = Service::start(&dir.path().join("shop.pool"));
    let reports = |watches: &str| service.text("/report").expect("a reply").1.contains(watches);
    let stream = service.agent.get(format!("{}/events", service.url)).call().expect("a reply");
    assert!(reports("; 1 watches"));
    drop(stream);
    // The service looks every 200 ms.
    let is_gone = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(25));
        reports("; 0 watches")
    });
    assert!(is_gone);
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_up_a_clean_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("shop.pool");
    let mut service = Service::start(&path);
    let ada = service.customer("ada");
    let stream = service.agent.get(format!("{}/events", service.url)).call().expect("a reply");
    let item = json!({ "article": "a".repeat(100), "quantity": 1, "price": 1 });
    let order = json!({ "customer": ada, "items": vec![item; 100] });
    // More than the buffers of the sockets and of the service.
    for _ in 0..1000 {
        assert_eq!(service.post("/orders", &order).0, 201);
    }
    assert!(service.terminate());
    drop(stream);
    let service = Service::start(&path);
    assert!(service.greeting.contains(": clean start"), "{}", service.greeting);
    assert_eq!(service.get("/sales").1["orders"], 1000);
}

/// Orders and cancels until the service dies; adds acknowledged requests to `done`.
fn shop_until_killed(
    service: &Service,
    who: usize,
    customer: u64,
    done: &Mutex<Vec<(u64, u64, bool)>>,
    count: &AtomicUsize,
) {
    for at in 0_u64.. {
        let (price, key) = (1 + at % 100, format!("{who} {at} {}", service.url));
        let body = order(customer, 1 + at % 3, price).to_string();
        let Ok((status, made)) = service.send("/orders", &body, Some(&key)) else { return };
        assert_eq!(status, 201, "{made}");
        let number = made["id"].as_u64().expect("a number");
        done.lock().expect("no panics").push((number, price * (1 + at % 3), false));
        count.fetch_add(1, SeqCst);
        if at % 10 == 9 {
            let Ok((status, _)) = service.send(&format!("/orders/{number}/cancel"), "", None)
            else {
                return;
            };
            assert_eq!(status, 200);
            done.lock().expect("no panics").last_mut().expect("it was made").2 = true;
        }
    }
}

#[test]
fn every_acknowledged_order_is_there_after_a_kill_and_the_sums_agree() {
    const THREADS: usize = 4;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("shop.pool");
    let mut service = Service::start(&path);
    // Two threads share a customer: their transactions conflict and run again.
    let customers = [service.customer("ada"), service.customer("bob")];
    let done: Vec<_> = (0..THREADS).map(|_| Mutex::new(Vec::new())).collect();
    for round in 1..=3 {
        let (count, pid) = (AtomicUsize::new(0), Pid::from_child(&service.process));
        thread::scope(|scope| {
            for (who, done) in done.iter().enumerate() {
                let (service, count) = (&service, &count);
                scope.spawn(move || {
                    shop_until_killed(service, who, customers[who % 2], done, count);
                });
            }
            while count.load(SeqCst) < 150 {
                thread::yield_now();
            }
            kill_process(pid, Signal::KILL).expect("it runs");
        });
        service = {
            drop(service);
            Service::start(&path)
        };
        assert!(service.greeting.contains(": recovered start"), "{}", service.greeting);
        let (mut acknowledged, mut total) = (0, 0);
        for orders in &done {
            for &(number, sum, is_cancelled) in &*orders.lock().expect("no panics") {
                let (status, order) = service.get(&format!("/orders/{number}"));
                assert_eq!((status, &order["total"]), (200, &json!(sum)), "order {number}");
                // A cancellation whose reply the kill cut off may have taken place.
                let cancelled = order["is_cancelled"] == true;
                assert!(cancelled || !is_cancelled, "order {number}");
                total += if cancelled { 0 } else { sum };
                acknowledged += 1;
            }
        }
        let sales = service.get("/sales").1;
        let [orders, sold] =
            ["orders", "total"].map(|name| sales[name].as_u64().expect("a number"));
        assert_eq!(sales["agrees"], true, "{sales}");
        // One order of each thread may have been made in a round without a reply.
        assert!(
            (acknowledged..=acknowledged + (THREADS * round) as u64).contains(&orders),
            "{sales}"
        );
        assert!((total..=total + (300 * THREADS * round) as u64).contains(&sold), "{sales}");
    }
}
