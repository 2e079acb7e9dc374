package oci

import "github.com/google/go-containerregistry/pkg/v1"

// CheckManifest reports what is no image that sandboxes could be made from.
func CheckManifest(m *v1.Manifest) error {
	if !m.Config.MediaType.IsConfig() && m.Config.MediaType != "" {
		return invalid("is none: its configuration is of the type %.100q, and %s is that of an image",
			m.Config.MediaType, "application/vnd.oci.image.config.v1+json")
	}
	if len(m.Layers) > MaxLayers {
		return invalid("has %d layers; the limit is %d", len(m.Layers), MaxLayers)
	}
	if m.Config.Size > MaxJSON {
		return invalid("has a configuration of %d bytes; the limit is %d", m.Config.Size, MaxJSON)
	}
	if m.Config.Digest.Hex == "" {
		return invalid("has no digest of its configuration")
	}
	for i, l := range m.Layers {
		if l.Digest.Hex == "" {
			return invalid("has no digest of its layer %d", i+1)
		}
		if !l.MediaType.IsLayer() {
			return invalid("has a layer of the type %.100q, which is no directory of files", l.MediaType)
		}
		if l.Size < 0 {
			return invalid("has a layer %d of %d bytes", i+1, l.Size)
		}
	}
	return nil
}
