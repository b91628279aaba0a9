//! Descriptions for people: which failures a pool survives, by detection and by the caller's assertion.

use std::path::Path;

use crate::media::Medium;
use crate::mode::Durability;

use super::Pool;
use super::detect;

/// The source of a pool's memory.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Memory,
    File(detect::Medium),
}

impl<M: Medium> Pool<M> {
    /// Returns `true` if `path` leads to the pool's own file, by any name: a hard link, a symbolic link.
    pub fn is_at(&self, path: &Path) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.is_at(path))
    }

    /// Describes what survives a crash of the process, a crash of the operating system, and a power failure;
    /// says what was detected, and what the caller asserted.
    pub fn describe(&self) -> String {
        describe(&self.facts.origin, self.facts.read_only, self.facts.emulated)
    }
}

fn describe(origin: &Origin, read_only: bool, emulated: bool) -> String {
    let medium = match origin {
        Origin::Memory => {
            let flushes = if emulated {
                " Flushes and fences are executed all the same (emulated persistent memory)."
            } else {
                ""
            };
            return format!(
                "Anonymous memory (as asked for): nothing survives the end of the process.{flushes}"
            );
        }
        Origin::File(medium) => medium,
    };
    let text = for_writers(medium);
    if read_only {
        return format!(
            "{text} Opened for reading only: the file is never written, and what recovery changes is \
             a private copy that ends with this process."
        );
    }
    let asserted = if emulated {
        " As the caller asked, every flush and fence is executed as on persistent memory: emulated, \
         it costs the time and adds no durability."
    } else {
        ""
    };
    text + asserted
}

/// Describes what a medium guarantees to a process that writes to it.
pub(super) fn for_writers(medium: &detect::Medium) -> String {
    let survives = match medium.durability {
        Durability::Volatile => "nothing survives the end of the process",
        Durability::Process => {
            "what was acknowledged survives a crash or kill of the process; an OS crash or power \
             failure can lose or tear anything"
        }
        Durability::Periodic => {
            "what was acknowledged survives a crash or kill of the process; an OS crash or power failure \
             takes the last moments at most, and leaves what was there at one moment before, from the \
             twin on a disk; Pool::sync waits for it"
        }
        Durability::Msync => {
            "every fence waits for an msync, so what was acknowledged survives a crash of the \
             process, of the OS, and a power failure, if the drive keeps what it reports as written"
        }
        Durability::Journal => {
            "every fence waits for a write to the journal, so what was acknowledged survives a crash \
             of the process, of the OS, and a power failure, if the drive keeps what it reports as \
             written; file and journal belong together until the pool is closed"
        }
        Durability::Fence | Durability::Flush => {
            "what was acknowledged survives a crash of the process, of the OS, and a power failure"
        }
    };
    let how = match medium.durability {
        Durability::Flush => "; each line is flushed from the CPU caches before its fence",
        Durability::Fence => "; a store fence suffices, no line is flushed",
        _ => "",
    };
    let detect::Medium { what, why, .. } = medium;
    format!("On {what}: {survives}{how}. Detected: {why}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(durability: Durability) -> Origin {
        Origin::File(detect::Medium { durability, what: "X".into(), why: "Y", dax: false })
    }

    #[test]
    fn an_emulated_pool_never_claims_to_survive_a_power_failure() {
        let text = describe(&file(Durability::Process), false, true);
        assert!(text.contains("emulated") && text.contains("can lose or tear anything"), "{text}");
        assert!(!text.contains("and a power failure"), "{text}");
        assert!(describe(&Origin::Memory, false, true).contains("nothing survives"));
    }

    #[test]
    fn each_mode_says_what_it_survives() {
        for mode in [Durability::Msync, Durability::Fence, Durability::Flush] {
            let text = describe(&file(mode), false, false);
            assert!(
                text.contains("and a power failure") && text.contains("Detected: Y."),
                "{text}"
            );
        }
        let reader = describe(&file(Durability::Flush), true, false);
        assert!(reader.contains("never written") && reader.contains("and a power failure"));
    }
}
