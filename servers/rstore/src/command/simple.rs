//! Commands that read no record, and so run in any partition and in a transaction.

use super::{Call, Outcome, Refusal};

/// `PING [message]`
pub(crate) fn ping(call: &mut Call<'_, '_>) -> Outcome {
    match call.args.len() {
        1 => call.out.simple("PONG"),
        2 => call.out.bulk(call.args.at(1)),
        _ => return Err(Refusal::arity(call.name)),
    }
    Ok(())
}

/// `ECHO message`
pub(crate) fn echo(call: &mut Call<'_, '_>) -> Outcome {
    call.out.bulk(call.args.at(1));
    Ok(())
}

/// `SELECT 0`
pub(crate) fn select(call: &mut Call<'_, '_>) -> Outcome {
    match call.integer(1) {
        Ok(0) => call.out.ok(),
        Ok(_) => return Err(Refusal::of("ERR DB index is out of range")),
        Err(refusal) => return Err(refusal),
    }
    Ok(())
}

/// `UNWATCH` in a transaction, where it has no effect.
pub(crate) fn unwatch(call: &mut Call<'_, '_>) -> Outcome {
    call.out.ok();
    Ok(())
}

/// `TIME`
pub(crate) fn time(call: &mut Call<'_, '_>) -> Outcome {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    call.out.bulks(&[since.as_secs().to_string(), since.subsec_micros().to_string()]);
    Ok(())
}
