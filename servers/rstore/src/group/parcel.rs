//! What nodes send each other: messages of Raft, and messages of channels.
//!
//! ```text
//! | 0 | number of the group (8); 0: not known | message |        of a partition's group
//! | 1 | bytes of the channel (4) | channel | message |         for the subscribers of the receiving node
//! ```

use std::num::NonZeroU64;

const RAFT: u8 = 0;
const CHANNEL: u8 = 1;

/// What a node sends to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parcel {
    /// A message of a group, encoded by [`pmindex_replica::encode`].
    Raft { group: Option<NonZeroU64>, message: Vec<u8> },
    /// A message of a channel.
    Channel { channel: Vec<u8>, message: Vec<u8> },
}

impl Parcel {
    /// Returns the bytes of it when it is encoded.
    pub(super) fn len(&self) -> usize {
        1 + match self {
            Self::Raft { message, .. } => 8 + message.len(),
            Self::Channel { channel, message } => 4 + channel.len() + message.len(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Raft { group, message } => {
                let group = group.map_or(0, NonZeroU64::get).to_le_bytes();
                [&[RAFT], group.as_slice(), message].concat()
            }
            Self::Channel { channel, message } => {
                let length = (channel.len() as u32).to_le_bytes();
                [&[CHANNEL], length.as_slice(), channel, message].concat()
            }
        }
    }

    /// Returns `None` if the bytes are no parcel.
    pub(super) fn decode(mut bytes: Vec<u8>) -> Option<Self> {
        match *bytes.first()? {
            RAFT => {
                let group = u64::from_le_bytes(*bytes[1..].first_chunk()?);
                bytes.drain(..9);
                Some(Self::Raft { group: NonZeroU64::new(group), message: bytes })
            }
            CHANNEL => {
                let (length, rest) = bytes[1..].split_first_chunk()?;
                let (channel, message) =
                    rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                Some(Self::Channel { channel: channel.to_vec(), message: message.to_vec() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_come_out_as_they_went_in_and_others_are_refused() {
        let channel = Parcel::Channel { channel: b"news".to_vec(), message: b"\0rain".to_vec() };
        let empty = Parcel::Channel { channel: Vec::new(), message: Vec::new() };
        let vote = Parcel::Raft { group: NonZeroU64::new(7), message: b"vote".to_vec() };
        let nothing = Parcel::Raft { group: None, message: Vec::new() };
        for parcel in [channel.clone(), empty, vote, nothing] {
            assert_eq!(parcel.encode().len(), parcel.len());
            assert_eq!(Parcel::decode(parcel.encode()), Some(parcel));
        }
        let encoded = channel.encode();
        for end in 0..1 + 4 + b"news".len() {
            assert_eq!(Parcel::decode(encoded[..end].to_vec()), None, "{end} bytes");
        }
        assert_eq!(Parcel::decode(vec![2, 0]), None);
        assert_eq!(Parcel::decode(vec![RAFT; 8]), None);
        assert_eq!(Parcel::decode([&[CHANNEL], u32::MAX.to_le_bytes().as_slice()].concat()), None);
    }
}
