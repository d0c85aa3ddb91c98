//! Producers, consumers and administration: the engine under the SDK.
