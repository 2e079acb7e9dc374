package langsmith

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// noteTagValues keeps the tag values of a box. They are the caller's order alone here: what
// the original lets them decide, cloud identities, there is not.
const noteTagValues = "langsmith.tag_values"

const maxTagValues = 64

// tagValueID is one: a UUID, or any word without spaces and commas.
var tagValueID = lazyregexp.New(`^[A-Za-z0-9._:-]{1,128}$`)

// noteOfTagValues is how tag values are kept; "": there are none.
func noteOfTagValues(ids []string) (string, error) {
	if len(ids) > maxTagValues {
		return "", &driver.InvalidError{Field: "tag_value_ids", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(ids), maxTagValues)}
	}
	for _, id := range ids {
		if !tagValueID.MatchString(id) {
			return "", &driver.InvalidError{Field: "tag_value_ids",
				Reason: fmt.Sprintf("has %.80q; 1 to 128 letters, digits, '.', '_', ':' and '-' are allowed", id)}
		}
	}
	return strings.Join(ids, ","), nil
}

// tagValues are those of a box.
func tagValues(notes map[string]string) []string {
	if text := notes[noteTagValues]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// hasAll reports whether all that are wanted are there.
func hasAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(id string) bool { return !slices.Contains(have, id) })
}
