package files

import "fmt"

// metadataPrefix is the namespace of metadata among the extended attributes.
const metadataPrefix = "user.e2b."

const (
	// MaxMetadataKey is the most bytes of a key: an attribute's name has at
	// most 255, the prefix included.
	MaxMetadataKey = 255 - len(metadataPrefix)
	// MaxMetadata is the most bytes of all keys, each with its prefix, and
	// values of one file: ext4 keeps them in one block.
	MaxMetadata = 4096
)

// CheckMetadata refuses keys and values that cannot be kept: only printable
// ASCII, within [MaxMetadataKey] and [MaxMetadata]. The error is an
// [InvalidError].
func CheckMetadata(metadata map[string]string) error {
	total := 0
	for k, v := range metadata {
		if k == "" {
			return &InvalidError{Field: "metadata", Reason: "key must not be empty"}
		}
		if len(k) > MaxMetadataKey {
			return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("key %.40q exceeds %d bytes", k, MaxMetadataKey)}
		}
		if i := firstUnprintable(k); i >= 0 {
			return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("key contains non-printable-ASCII byte 0x%02x at offset %d", k[i], i)}
		}
		if i := firstUnprintable(v); i >= 0 {
			return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("value for key %q contains non-printable-ASCII byte 0x%02x at offset %d",
				k, v[i], i)}
		}
		total += len(metadataPrefix) + len(k) + len(v)
	}
	if total > MaxMetadata {
		return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("has %d bytes in all, which exceeds %d", total, MaxMetadata)}
	}
	return nil
}

func firstUnprintable(s string) int {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return i
		}
	}
	return -1
}
