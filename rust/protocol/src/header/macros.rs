//! Makes header structs from lists of fields.

/// Makes a header struct and its [`Header`](super::Header) implementation from a list of fields with their wire names.
///
/// A field of type `Option<_>` may be absent; any other must be there.
macro_rules! header {
    (
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* #[doc = concat!("On the wire: `", $key, "`.")] pub $field: $type,)*
        }

        header!(@impl $name $(<$life>)? { $($field = $key,)* });
    };
    (@impl $name:ident { $($field:ident = $key:literal,)* }) => {
        impl<'a> $crate::Header<'a> for $name {
            header!(@methods 'a { $($field = $key,)* });
        }
    };
    (@impl $name:ident <$life:lifetime> { $($field:ident = $key:literal,)* }) => {
        impl<$life> $crate::Header<$life> for $name<$life> {
            header!(@methods $life { $($field = $key,)* });
        }
    };
    (@methods $life:lifetime { $($field:ident = $key:literal,)* }) => {
        fn read(fields: &$life $crate::ExtFields) -> Result<Self, $crate::HeaderError> {
            header!(@read fields { $($field = $key,)* })
        }

        fn write(&self, fields: &mut $crate::ExtFields) {
            header!(@reserve fields $($key)*);
            $($crate::header::Field::write(&self.$field, $key, fields);)*
        }
    };
    (@reserve $fields:ident $($key:literal)*) => {
        // Room for most values, so that a header is built with two allocations.
        $fields.reserve([$($key),*].len(), 64 $(+ $key.len() + 16)*);
    };
    (@read $fields:ident { $($field:ident = $key:literal,)* }) => {{
        $(let mut $field = None;)*
        for (name, value) in $fields.iter() {
            match name {
                $($key => $field = Some(value),)*
                _ => {}
            }
        }
        Ok(Self { $($field: $crate::header::Field::read($key, $field)?,)* })
    }};
}
