// Package onexit defines the labels with which a process requests actions at its end.
// The daemon performs them at least once, whichever role of tend dies; package
// internal/server/exits specifies their meaning.
package onexit

import (
	"maps"
	"net/url"

	"github.com/tend-run/tend/process"
)

// Labels of a process that asks.
const (
	LabelCommand = "tend.on-exit"     // a line for the shell
	LabelURL     = "tend.on-exit-url" // is sent the facts of the end as JSON
	LabelPin     = "tend.on-exit-pin" // "1": the process stays pinned after that
)

// Ask adds to the spec the request for a shell line, for a message to an http or https
// URL, or for both; an empty argument requests nothing. It pins the process, because
// nothing else keeps it until the action is done; a process that was to be pinned
// anyway stays pinned. The map of labels is replaced, not modified. An error is that of
// [CheckURL], and leaves the spec unchanged.
func Ask(s *process.Spec, line, to string) error {
	labels := map[string]string{}
	if line != "" {
		labels[LabelCommand] = line
	}
	if to != "" {
		if err := CheckURL(to); err != nil {
			return err
		}
		labels[LabelURL] = to
	}
	if len(labels) == 0 {
		return nil
	}
	if s.Retention.Pin {
		labels[LabelPin] = "1"
	}
	all := maps.Clone(s.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	s.Labels, s.Retention.Pin = all, true
	return nil
}

// CheckURL reports a URL to which no message can be sent, as a [*process.InvalidError]. The
// error does not hold the URL, which may hold a secret.
func CheckURL(to string) error {
	if u, err := url.Parse(to); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &process.InvalidError{Field: "on_exit_url", Reason: "is no URL of http or https"}
	}
	return nil
}
