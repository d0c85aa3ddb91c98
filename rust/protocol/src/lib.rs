//! Sans-IO codecs of the remoting protocol and of the stored message.
