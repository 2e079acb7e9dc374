// Package oci holds images: their layers, unpacked once for the machine, and what they say of
// the programs in them.
//
// # On disk
//
//	<dir>/<hex>.json  what is known of an image: the file is named after the digest of its
//	                  configuration, which is the image's ID
//	<dir>/.new/…      an archive that is being read; Open removes what is left
//
// The files of an image are layers of package layer, found by the chain of the digests of
// their contents ("image sha256:…"), so images that begin alike share them. Compressed layers
// are not kept. A layer is made by one Add at a time, whoever asks for it, and the others wait;
// it is there as a whole or not at all, whenever the daemon is killed. An image holds its
// topmost layer, which keeps those below; a sandbox holds it on its own.
//
// # Names
//
// A name is HOST/PATH:TAG. Without a host it is docker.io's, without a path library/, without a
// tag latest. A name belongs to one image, the one that it was given to last.
package oci

// What an image may have.
const (
	// MaxLayers of an image.
	MaxLayers = 127
	// MaxJSON bytes of a manifest, an index or a configuration.
	MaxJSON = 4 << 20
	// MaxWindow is how much memory a layer compressed by zstd may ask for, in bytes.
	MaxWindow = 128 << 20
	// MaxNames of an image.
	MaxNames = 256
)
