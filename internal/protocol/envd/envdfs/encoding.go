package envdfs

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// coding is one element of an Accept-Encoding header.
type coding struct {
	name string
	q    float64
}

// parseCodings reads an Accept-Encoding header, the most wanted first. A q
// that is no number counts as 1, as in the original.
func parseCodings(header string) []coding {
	var list []coding
	for word := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(word, ";")
		c := coding{name: strings.ToLower(strings.TrimSpace(name)), q: 1}
		for param := range strings.SplitSeq(params, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			if q, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(q) && strings.EqualFold(key, "q") {
				c.q = q
			}
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b coding) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	return list
}

// identityRefused reports whether the client takes no plain answer:
// "identity;q=0", or "*;q=0" without identity in the list.
func identityRefused(list []coding) bool {
	refused := false
	for _, c := range list {
		switch {
		case c.name == "identity":
			return c.q == 0
		case c.name == "*" && c.q == 0:
			refused = true
		}
	}
	return refused
}

var errNoEncoding = errors.New("no acceptable encoding found, supported: [gzip]")

// useGzip decides by an Accept-Encoding header whether the answer is gzipped.
func useGzip(header string) (gzip, plainRefused bool, err error) {
	if header == "" {
		return false, false, nil
	}
	list := parseCodings(header)
	plainRefused = identityRefused(list)
	for _, c := range list {
		switch {
		case c.q == 0:
		case c.name == "gzip":
			return true, plainRefused, nil
		case c.name == "identity":
			return false, plainRefused, nil
		case c.name == "*":
			return plainRefused, plainRefused, nil
		}
	}
	if plainRefused {
		return false, true, errNoEncoding
	}
	return false, false, nil
}
