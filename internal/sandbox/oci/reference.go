package oci

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// dockerHub is how names say it, and registryHub is how the library does.
const dockerHub, registryHub = "docker.io", "index.docker.io"

// Reference names an image of a registry, in full.
type Reference struct {
	Host string // "docker.io"
	Path string // "library/python"
	// Tag or Digest ("sha256:…") is set.
	Tag, Digest string
}

// ParseReference reads a name as people write it. The error is a *driver.InvalidError.
func ParseReference(text string) (Reference, error) {
	fail := func(reason string) (Reference, error) {
		return Reference{}, &driver.InvalidError{Field: "image",
			Reason: fmt.Sprintf("is %.200q: %s; write [HOST/]PATH[:TAG] or [HOST/]PATH@sha256:DIGEST, such as python:3", text, reason)}
	}
	if len(text) > 512 {
		return fail("it is too long")
	}
	ref, err := name.ParseReference(text)
	if err != nil {
		return fail("no name of an image has this form")
	}
	r := Reference{Host: ref.Context().RegistryStr(), Path: ref.Context().RepositoryStr()}
	for part := range strings.SplitSeq(r.Host+"/"+r.Path, "/") { // the library takes "../x", too
		if !alphanumeric(part[:min(1, len(part))]) || !alphanumeric(part[max(0, len(part)-1):]) {
			return fail("its parts begin and end with a letter or a digit")
		}
	}
	if r.Host == registryHub {
		r.Host = dockerHub
	}
	if d, ok := ref.(name.Digest); ok {
		r.Digest = d.DigestStr()
	} else {
		r.Tag = ref.Identifier()
	}
	return r, nil
}

// String is the whole name.
func (r Reference) String() string { return r.Host + "/" + r.Path + r.suffix() }

// Short is the name as people write it.
func (r Reference) Short() string {
	if r.Host != dockerHub {
		return r.String()
	}
	return strings.TrimPrefix(r.Path, "library/") + r.suffix()
}

func (r Reference) suffix() string {
	if r.Digest != "" {
		return "@" + r.Digest
	}
	return ":" + r.Tag
}

// shortName is Short of a whole name.
func shortName(full string) string {
	r, err := ParseReference(full)
	if err != nil {
		return full
	}
	return r.Short()
}

func alphanumeric(c string) bool {
	return c >= "a" && c <= "z" || c >= "A" && c <= "Z" || c >= "0" && c <= "9"
}
