//! A time series: many sensors append, a chart reads the latest hour of one of them.
//!
//! The key is a tuple, (sensor, time), and sorts like one: the points of a sensor are adjacent, in order of
//! time, so an interval is one range scan, and the latest point of a sensor is the end of one. A batch of
//! points costs a few fences in total (`try_insert_many`).
//!
//! ```console
//! cargo run --release --example time_series
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use pmindex::{FpTree, Pool, PoolOptions};

/// Sensor and time, in milliseconds.
type Key = (u32, u64);
/// A measurement; `f64::to_bits`.
type Point = u64;

const SENSORS: u32 = 50;
const MINUTE: u64 = 60_000;

/// All sensors report once a minute: one batch.
fn report(series: &FpTree<Key, Point>, time: u64) -> Result<(), Box<dyn Error>> {
    let measure =
        |sensor: u32| f64::from(sensor) + f64::from(u32::try_from(time % 1000).unwrap_or(0));
    let batch: Vec<(Key, Point)> =
        (0..SENSORS).map(|sensor| ((sensor, time), measure(sensor).to_bits())).collect();
    match series.try_insert_many(&batch).stopped {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let options = PoolOptions::new().write_back(false);
    let pool = Arc::new(Pool::create(folder.path().join("series.pool"), &options)?);
    let series = FpTree::<Key, Point>::create(&pool, "points")?;

    let started = Instant::now();
    let minutes = 24 * 60;
    for minute in 0..minutes {
        report(&series, minute * MINUTE)?;
    }
    let elapsed = started.elapsed();
    assert_eq!(series.len()?, minutes * u64::from(SENSORS));
    println!(
        "a day of {SENSORS} sensors: {} points in {:.0} ms",
        series.len()?,
        elapsed.as_secs_f64() * 1e3
    );

    // The last hour of sensor 7, oldest first.
    let now = minutes * MINUTE;
    let hour = (7, now - 60 * MINUTE)..(7, now);
    let points: Vec<(Key, Point)> = series.range(hour).collect::<Result<_, _>>()?;
    assert_eq!(points.len(), 60);
    assert!(points.iter().all(|((sensor, _), _)| *sensor == 7));

    // Its latest point: the end of its range.
    let latest = series.range((7, 0)..=(7, u64::MAX)).next_back().transpose()?;
    let Some(((_, time), value)) = latest else { return Err("sensor 7 never reported".into()) };
    assert_eq!(time, now - MINUTE);
    println!("sensor 7 at minute {}: {}", time / MINUTE, f64::from_bits(value));

    // Retention: remove points older than twelve hours, sensor by sensor.
    let horizon = now - 12 * 60 * MINUTE;
    for sensor in 0..SENSORS {
        let old: Vec<Key> = series
            .range((sensor, 0)..(sensor, horizon))
            .map(|r| r.map(|(k, _)| k))
            .collect::<Result<_, _>>()?;
        for key in old {
            series.remove(&key)?;
        }
    }
    assert_eq!(series.len()?, minutes / 2 * u64::from(SENSORS));
    println!("{} points are left of the last twelve hours", series.len()?);
    Ok(())
}

#[cfg(test)]
#[test]
fn it_holds_what_it_says() {
    main().expect("every step works");
}
