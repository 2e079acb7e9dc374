package oci

import (
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
)

// Machine is a platform that runs programs.
type Machine struct{ v1.Platform }

// Own is this machine.
func Own() Machine {
	p := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	switch p.Architecture {
	case "arm":
		p.Variant = "v7"
	case "arm64":
		p.Variant = "v8"
	}
	return Machine{p}
}

// Runs reports whether the machine runs programs for a platform.
func (m Machine) Runs(p v1.Platform) bool {
	if p.OS != m.OS || p.Architecture != m.Architecture {
		return false
	}
	switch {
	case p.Variant == "" || p.Variant == m.Variant || m.Architecture == "arm64":
		return true
	case m.Architecture == "amd64":
		return p.Variant == "v1" // later ones need more than each such machine has
	}
	return p.Variant < m.Variant
}

// Choose finds the manifest for the machine in an index: of several variants the highest.
// Attestations are for no platform.
func (m Machine) Choose(all []v1.Descriptor) (v1.Descriptor, error) {
	best, there := -1, []string{}
	for i, d := range all {
		if d.Digest.Hex == "" {
			return v1.Descriptor{}, invalid("has an index with a manifest without a digest")
		}
		if d.Platform == nil { // the only one of a layout
			if len(all) == 1 {
				return d, nil
			}
			continue
		}
		if d.Platform.OS == "unknown" {
			continue
		}
		there = append(there, d.Platform.String())
		if m.Runs(*d.Platform) && (best < 0 || d.Platform.Variant > all[best].Platform.Variant) {
			best = i
		}
	}
	if best < 0 {
		slices.Sort(there)
		return v1.Descriptor{}, invalid("is not for this machine (%s); it is for: %s", m.Platform, strings.Join(slices.Compact(there), ", "))
	}
	return all[best], nil
}
