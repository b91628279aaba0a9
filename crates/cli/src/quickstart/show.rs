//! What a quickstart found, for a person and as JSON.

use serde_json::{Value, json};

use crate::style;
use crate::table::{Table, bytes, digits, millis, rate, thousands, wrapped};

use super::exercise::{Both, Op, Spent};
use super::model::Verdict;
use super::{Round, Summary};

/// Prints the whole story.
pub(crate) fn print(summary: &Summary, kept: bool) {
    let [words, integers] = summary.loaded;
    println!(
        "\n{}  {} words and {} integers in {} s ({} of PM)",
        style::bold("Loaded   "),
        thousands(words),
        thousands(integers),
        digits(summary.load_time.as_secs_f64()),
        bytes(summary.pool_bytes),
    );
    println!("\n{}", operations(&summary.speeds, &summary.costs));
    match summary.rounds.as_slice() {
        [round] => one(round),
        rounds => many(rounds),
    }
    promise(summary);
    if kept {
        println!("\nThe pool stays at {}", summary.pool.display());
    }
}

/// A row for each operation: rates on both indexes, lines flushed and fences.
fn operations(speeds: &Both, costs: &Both) -> String {
    let heading = ["operation", "words/s", "lines", "fences", "integers/s", "lines", "fences"];
    let mut table = Table::new(heading);
    let per_op = |spent: &Spent| [digits(spent.lines_per_op()), digits(spent.fences_per_op())];
    for (row, (op, _)) in speeds[0].iter().enumerate() {
        let mut cells = vec![op.name().to_owned()];
        for side in 0..2 {
            cells.push(rate(speeds[side][row].1.rate()));
            cells.extend(per_op(&costs[side][row].1));
        }
        table.row(cells);
    }
    format!("{}  lines flushed and fences: per operation, counted exactly\n", table.render())
}

fn one(round: &Round) {
    let acknowledged = &round.acknowledged;
    println!(
        "{}  a child process on {} threads: SIGKILL after {}, {} writes acknowledged",
        style::bold("Killed   "),
        acknowledged.steps.len(),
        millis(acknowledged.writing),
        thousands(acknowledged.total()),
    );
    println!(
        "{}  in {}: {} leaves read, {} interrupted operations decided",
        style::bold("Recovered"),
        millis(round.opened.time),
        thousands(round.opened.reports.iter().map(|report| report.leaves).sum()),
        round.opened.reports.iter().map(|report| report.repaired).sum::<u64>(),
    );
    verified(round);
}

fn many(rounds: &[Round]) {
    let writes = rounds.iter().map(|round| round.acknowledged.total()).sum();
    let idle = rounds.iter().filter(|round| round.acknowledged.total() == 0).count();
    let slowest = rounds.iter().map(|round| round.opened.time).max().unwrap_or_default();
    let mut times: Vec<_> = rounds.iter().map(|round| round.opened.time).collect();
    times.sort_unstable();
    println!(
        "{}  {} times, {} writes acknowledged; {idle} kills hit the child before its first write",
        style::bold("Killed   "),
        thousands(rounds.len() as u64),
        thousands(writes),
    );
    println!(
        "{}  each time: median {}, slowest {}",
        style::bold("Recovered"),
        millis(times[times.len() / 2]),
        millis(slowest),
    );
    if let Some(last) = rounds.last() {
        verified(last);
    }
}

fn verified(round: &Round) {
    let total = |part: fn(&Verdict) -> u64| part(&round.words) + part(&round.integers);
    let title = style::bold("Verified ");
    if round.holds() {
        println!(
            "{title}  {} records: {}",
            thousands(total(|v| v.records)),
            style::good("every acknowledged write is there, and nothing else"),
        );
        println!(
            "           {} changes were in flight, {} of them done, none in part",
            total(|v| v.in_flight),
            total(|v| v.in_flight_done)
        );
        return;
    }
    println!(
        "{title}  {}: {} lost, {} that should not be there, {} with a wrong value",
        style::bad("FAILED"),
        total(|v| v.lost),
        total(|v| v.ghosts),
        total(|v| v.wrong)
    );
    for example in round.words.examples.iter().chain(&round.integers.examples) {
        println!("             {example}");
    }
}

fn promise(summary: &Summary) {
    let promise = &summary.promise;
    let yes = |survives| if survives { style::good("survives") } else { style::bad("lost") };
    println!("\n{}  {}", style::bold("Durability"), promise.title());
    println!("{}", wrapped(&promise.words));
    println!("  kill -9 or crash of the process        {}", yes(promise.survives_process_crash));
    println!("  crash of the operating system, power   {}", yes(promise.survives_power_failure));
}

/// The same as JSON.
pub(crate) fn json(summary: &Summary) -> Value {
    let operations: Vec<Value> = ["words", "integers"]
        .into_iter()
        .zip(summary.speeds.iter().zip(&summary.costs))
        .flat_map(|(index, (speeds, costs))| {
            speeds
                .iter()
                .zip(costs)
                .map(move |((op, speed), (_, cost))| row(index, *op, speed, cost))
        })
        .collect();
    json!({
        "holds": summary.holds(),
        "seed": summary.seed,
        "pool": summary.pool,
        "pool_bytes": summary.pool_bytes,
        "durability": summary.promise,
        "words": summary.loaded[0],
        "integers": summary.loaded[1],
        "load_seconds": summary.load_time.as_secs_f64(),
        "operations": operations,
        "rounds": summary.rounds.iter().map(round).collect::<Vec<_>>(),
    })
}

fn row(index: &str, op: Op, speed: &Spent, cost: &Spent) -> Value {
    json!({
        "index": index,
        "op": op,
        "ops": speed.ops,
        "seconds": speed.time.as_secs_f64(),
        "mops": speed.rate() / 1e6,
        "flushed_lines_per_op": cost.lines_per_op(),
        "fences_per_op": cost.fences_per_op(),
    })
}

fn round(round: &Round) -> Value {
    let total = |part: fn(&Verdict) -> u64| part(&round.words) + part(&round.integers);
    json!({
        "acknowledged": round.acknowledged.total(),
        "writing_seconds": round.acknowledged.writing.as_secs_f64(),
        "recovery_ms": round.opened.time.as_secs_f64() * 1e3,
        "records": total(|v| v.records),
        "in_flight": total(|v| v.in_flight),
        "in_flight_done": total(|v| v.in_flight_done),
        "lost": total(|v| v.lost),
        "ghosts": total(|v| v.ghosts),
        "wrong": total(|v| v.wrong),
    })
}
