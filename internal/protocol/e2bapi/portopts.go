package e2bapi

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol"
)

// maskHost is a host name, with ${PORT} at any place and a port or none.
var maskHost = lazyregexp.New(`^([A-Za-z0-9._-]|` + regexp.QuoteMeta(protocol.MaskPort) + `){1,253}(:([0-9]{1,5}|` +
	regexp.QuoteMeta(protocol.MaskPort) + `))?$`)

const maxHTTPSPorts = 64

// serve notes how ports are served, where a creation says so.
func (n *networkRequest) serve(notes map[string]string) error {
	if n.MaskRequestHost != "" {
		if !maskHost.MatchString(n.MaskRequestHost) {
			return badRequest("maskRequestHost is %.80q; a host name is needed, in which %s stands for the port", n.MaskRequestHost,
				protocol.MaskPort)
		}
		notes[protocol.NoteMaskHost] = n.MaskRequestHost
	}
	if len(n.HTTPSPorts) > maxHTTPSPorts {
		return badRequest("httpsPorts has %d entries; the limit is %d", len(n.HTTPSPorts), maxHTTPSPorts)
	}
	var ports []string
	for _, p := range n.HTTPSPorts {
		if p < 1 || p > 65535 {
			return badRequest("httpsPorts has %d; 1 to 65535 are allowed", p)
		}
		if text := strconv.Itoa(p); !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
	}
	if len(ports) > 0 {
		notes[protocol.NoteHTTPSPorts] = strings.Join(ports, ",")
	}
	return nil
}

// httpsPorts of a sandbox, as clients are told of them.
func httpsPorts(notes map[string]string) []int {
	var ports []int
	for text := range strings.SplitSeq(notes[protocol.NoteHTTPSPorts], ",") {
		if p, err := strconv.Atoi(text); err == nil {
			ports = append(ports, p)
		}
	}
	return ports
}
