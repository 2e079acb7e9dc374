// Package secure is the transport of distant 0.20 over TCP: version, frames,
// key exchange, encryption, authentication by a static key. It knows nothing of
// requests. [Server] and [Client] set a connection up; [Conn] then carries
// frames.
//
// # Set-up, as seen by the server (do not change)
//
//	→ 24 bytes, unframed: major, minor, patch of the version, each u64 BE
//	→ frame {"compression_types": [str], "encryption_types": [str]}
//	← frame {"compression_level": nil|str, "compression_type": nil|str, "encryption_type": nil|str}
//	⇄ frame {"public_key": bin 65, "salt": bin 32}, both at once
//	from here every item is encrypted
//	← frame "Connect", or {"Reconnect": {"id": u32, "otp": bin 32}}
//
// After Connect: the id of the connection (a bare u32), the authentication,
// and the exchange once more, whose key is the one-time password for resuming.
// After Reconnect, if the password is right: the exchange, for the next one.
// Structures are MessagePack with named fields. Compression is never offered,
// so there is nothing to inflate; a choice without encryption is refused.
//
// # Frame (do not change)
//
//	length u64 BE | item
//	encrypted item: nonce 24 | ciphertext | tag 16
//
// The cipher is XChaCha20-Poly1305 with a fresh random nonce for each frame and
// no additional data. The empty item is a heartbeat; encrypted it has 40 bytes.
//
// # Key (do not change)
//
//	HKDF-SHA256(secret = x of ECDH on P-256, salt = saltA xor saltB, info = "", 32 bytes)
package secure
