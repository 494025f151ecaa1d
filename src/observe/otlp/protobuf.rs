//! As much of Protocol Buffers as spans need.

/// A message that is being written. What has its default value is left out, as proto3 has it.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    /// An integer or a value of an enum.
    pub(super) fn integer(&mut self, field: u64, value: i64) {
        if value != 0 {
            self.element(field, value);
        }
    }

    /// The same, where zero is to be told.
    pub(super) fn element(&mut self, field: u64, value: i64) {
        self.key(field, VARINT);
        self.varint(value.cast_unsigned());
    }

    pub(super) fn fixed64(&mut self, field: u64, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u64, value: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes, a string, or a message that is written already.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message in this one.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The fields of a message that are integers or have a length, as far as it can be read.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// The value of a field.
pub(super) enum Value<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
    Other,
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let mut take = |length: usize| {
            let (taken, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            Some(taken)
        };
        let value = match key & 7 {
            VARINT => Value::Integer(self.varint()?),
            FIXED64 => take(8).map(|_| Value::Other)?,
            FIXED32 => take(4).map(|_| Value::Other)?,
            LENGTH => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    }
}
