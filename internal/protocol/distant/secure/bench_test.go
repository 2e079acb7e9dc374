package secure

import (
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

func BenchmarkSeal(b *testing.B) {
	aead, err := chacha20poly1305.NewX(make([]byte, KeySize))
	if err != nil {
		b.Fatal(err)
	}
	c := &Conn{aead: aead}
	const size = 128 << 10
	buf := make([]byte, Head+size, Head+size+Tail)
	b.SetBytes(size)
	for b.Loop() {
		c.Seal(buf)
	}
}
