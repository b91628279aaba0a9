//! The members of a group, where they are, and the number that tells it from other groups.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use pmindex_replica::{Change as MemberChange, Error};

use super::machine::{group_record, member_key};
use super::{FILL_OWN, Group, Member, NEAR, NEVER, Stored};
use crate::command::Refusal;

impl Group {
    /// Reads what the group has written down. An address that was written since the last time counts; an older one
    /// does not count more than what the node itself has said since.
    pub(super) fn read_members(&mut self) {
        match self.replica.state().members() {
            Ok(members) => {
                for (id, place) in members {
                    if self.written.get(&id) != Some(&place) {
                        self.written.insert(id, place.clone());
                        self.members.insert(id, place);
                    }
                }
            }
            Err(error) => tracing::error!(%error, "the places of members cannot be read"),
        }
        match self.replica.state().group() {
            Ok(number) => self.number = number.or(self.number),
            Err(error) => tracing::error!(%error, "the number of the group cannot be read"),
        }
    }

    /// Proposes a member: it receives all records, and votes when it has them. Its addresses are written
    /// down after Raft has accepted it; those of a member replace the old ones.
    pub(crate) fn join(&mut self, id: u64, member: &Member) -> Result<(), Refusal> {
        let stored = Stored { value: member.text().into_bytes(), expires: NEVER };
        let record = BTreeMap::from([(member_key(id), Some(stored))]);
        // Before the change, which cannot be taken back.
        let admitted = self.admit(&record, FILL_OWN)?;
        if !self.is_member(id) {
            self.replica.change(MemberChange::Learner(id)).map_err(refusal)?;
        }
        self.members.insert(id, member.clone());
        self.push(&record, admitted);
        Ok(())
    }

    /// Proposes the removal of a member.
    pub(crate) fn leave(&mut self, id: u64) -> Result<(), Refusal> {
        if !self.is_member(id) {
            return Err(format!("ERR node {id} is no member").into());
        }
        if self.replica.members().voters == [id] {
            return Err(Refusal::of("ERR it is the only voter"));
        }
        let record = BTreeMap::from([(member_key(id), None)]);
        let admitted = self.admit(&record, FILL_OWN)?;
        self.replica.change(MemberChange::Remove(id)).map_err(refusal)?;
        self.push(&record, admitted);
        Ok(())
    }

    pub(super) fn is_member(&self, id: u64) -> bool {
        let members = self.replica.members();
        members.voters.contains(&id) || members.learners.contains(&id)
    }

    /// Writes the number of the group, which is random if it is not known.
    pub(super) fn introduce_number(&mut self) {
        if !matches!(self.replica.state().group(), Ok(None)) {
            return;
        }
        let number = self.number.unwrap_or_else(random);
        let (key, value) = group_record(number);
        let record = BTreeMap::from([(key, Some(Stored { value, expires: NEVER }))]);
        let admitted = self.admit(&record, FILL_OWN).map(|done| self.push(&record, done));
        if let Err(failure) = admitted {
            tracing::error!(?failure, "the number of the group cannot be written down");
        }
    }

    /// Writes the addresses of the founders, for members that were started without them.
    pub(super) fn introduce_founders(&mut self) {
        let known = self.replica.state().members().unwrap_or_default();
        let voters = self.replica.members().voters;
        for (id, place) in self.founders.clone() {
            if voters.contains(&id) && known.iter().all(|(other, _)| *other != id) {
                let record = Stored { value: place.text().into_bytes(), expires: NEVER };
                let record = BTreeMap::from([(member_key(id), Some(record))]);
                let admitted = self.admit(&record, FILL_OWN).map(|done| self.push(&record, done));
                if let Err(failure) = admitted {
                    tracing::error!(?failure, "where a founder is cannot be written down");
                }
            }
        }
    }

    /// Makes a voter of a learner that has caught up.
    pub(super) fn promote(&mut self) {
        let learners = self.replica.members().learners;
        if let Some(&id) = learners.iter().find(|&&id| self.replica.is_near(id, NEAR)) {
            // Without effect while another change is in progress; it is tried again.
            let _ = self.replica.change(MemberChange::Voter(id));
        }
    }
}

/// Returns a number for a new group, of its founders and their addresses (FNV-1a).
pub(super) fn number_of(founders: &[(u64, Member)]) -> NonZeroU64 {
    let mut founders: Vec<_> =
        founders.iter().map(|(id, place)| format!("{id}={};", place.text())).collect();
    founders.sort_unstable();
    let hash = founders.concat().bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}

/// Returns a random number for a group.
pub(crate) fn random() -> NonZeroU64 {
    let seed = std::collections::hash_map::RandomState::new();
    let random = std::hash::BuildHasher::hash_one(&seed, std::process::id());
    NonZeroU64::new(random).unwrap_or(NonZeroU64::MIN)
}

/// Returns the reply to a change of members that Raft refuses.
fn refusal(error: Error) -> Refusal {
    match error {
        Error::ChangeInProgress | Error::Busy | Error::NotLeader { .. } => {
            format!("TRYAGAIN {error}").into()
        }
        other => format!("ERR {other}").into(),
    }
}
