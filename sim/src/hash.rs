//! The hash of a run: of every byte that moved and every write that was asked for. Equal runs, equal hash.

use mast_core::store::port::Write;

/// A running hash.
#[derive(Clone, Copy, Debug)]
pub struct RunHash(u64);

impl Default for RunHash {
    fn default() -> RunHash {
        RunHash(0xcbf2_9ce4_8422_2325)
    }
}

impl RunHash {
    /// Takes a number in.
    pub fn number(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Takes bytes in.
    pub fn mix(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.number(u64::from(*byte));
        }
        self.number(bytes.len() as u64);
    }

    /// Takes a write in.
    pub fn write(&mut self, write: &Write) {
        match write {
            Write::Append(append) => {
                self.mix(append.message.topic().as_bytes());
                self.mix(append.message.payload());
                self.number(u64::from(append.log) | u64::from(append.retain) << 1);
            }
            Write::Put { key, value, .. } => {
                self.mix(key.as_bytes());
                self.mix(value);
            }
            Write::Delete { key, .. } | Write::Check { key, .. } => self.mix(key.as_bytes()),
        }
    }

    /// The hash so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}
