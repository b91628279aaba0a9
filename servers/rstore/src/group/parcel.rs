//! What nodes send each other: messages of Raft, and messages of channels.
//!
//! ```text
//! | 0 | message |                                              of a partition's group
//! | 1 | bytes of the channel (4) | channel | message |         for the subscribers of the receiving node
//! ```

const RAFT: u8 = 0;
const CHANNEL: u8 = 1;

/// What a node sends to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parcel {
    /// A message of a group, encoded by [`pmindex_replica::encode`].
    Raft(Vec<u8>),
    /// A message of a channel.
    Channel { channel: Vec<u8>, message: Vec<u8> },
}

impl Parcel {
    /// Returns the bytes of it when it is encoded.
    pub(super) fn len(&self) -> usize {
        1 + match self {
            Self::Raft(message) => message.len(),
            Self::Channel { channel, message } => 4 + channel.len() + message.len(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Raft(message) => [&[RAFT], message.as_slice()].concat(),
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
                bytes.remove(0);
                Some(Self::Raft(bytes))
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
        for parcel in
            [channel.clone(), empty, Parcel::Raft(b"vote".to_vec()), Parcel::Raft(Vec::new())]
        {
            assert_eq!(parcel.encode().len(), parcel.len());
            assert_eq!(Parcel::decode(parcel.encode()), Some(parcel));
        }
        let encoded = channel.encode();
        for end in 0..1 + 4 + b"news".len() {
            assert_eq!(Parcel::decode(encoded[..end].to_vec()), None, "{end} bytes");
        }
        assert_eq!(Parcel::decode(vec![2, 0]), None);
        assert_eq!(Parcel::decode([&[CHANNEL], u32::MAX.to_le_bytes().as_slice()].concat()), None);
    }
}
