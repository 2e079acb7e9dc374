package e2bapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
)

// teamID stands where the original names the team: there are none here.
const teamID = "00000000-0000-0000-0000-000000000000"

// kinds are the events of the driver by the names of the wire.
var kinds = map[string]driver.EventKind{
	"sandbox.lifecycle.created":      driver.EventCreated,
	"sandbox.lifecycle.updated":      driver.EventUpdated,
	"sandbox.lifecycle.paused":       driver.EventPaused,
	"sandbox.lifecycle.resumed":      driver.EventResumed,
	"sandbox.lifecycle.killed":       driver.EventDestroyed,
	"sandbox.lifecycle.checkpointed": driver.EventSnapshot,
}

func typeOf(kind driver.EventKind) string {
	for name, k := range kinds {
		if k == kind {
			return name
		}
	}
	return string(kind) // of a newer server
}

// eventJSON is an event in answers and in deliveries.
type eventJSON struct {
	Version            string         `json:"version"`
	ID                 string         `json:"id"`
	Type               string         `json:"type"`
	EventData          map[string]any `json:"eventData"`
	SandboxBuildID     string         `json:"sandboxBuildId"`
	SandboxExecutionID string         `json:"sandboxExecutionId"`
	SandboxID          string         `json:"sandboxId"`
	SandboxTeamID      string         `json:"sandboxTeamId"`
	SandboxTemplateID  string         `json:"sandboxTemplateId"`
	Timestamp          string         `json:"timestamp"`
}

func eventOf(e *eventlog.Event) *eventJSON {
	data := map[string]any{}
	if len(e.Metadata) > 0 {
		data["sandbox_metadata"] = e.Metadata
	}
	if e.Omitted {
		data["sandbox_metadata_omitted"] = true
	}
	if e.Deadline != nil {
		data["set_timeout"] = e.Deadline.UTC().Format(time.RFC3339)
	}
	if e.Network {
		data["network_egress"] = map[string]any{"allowed": slices.Concat([]string{}, e.Allow), "denied": slices.Concat([]string{}, e.Deny)}
	}
	if e.Kind == driver.EventDestroyed {
		data["kill_reason"] = e.Reason
	}
	template := e.Template
	if template == "" {
		template = baseTemplate
	}
	return &eventJSON{
		Version: "v1", ID: e.ID, Type: typeOf(e.Kind), EventData: data, SandboxExecutionID: e.Run, SandboxID: string(e.Sandbox),
		SandboxTeamID: teamID, SandboxTemplateID: template, Timestamp: stamp(e.Time),
	}
}

func (f *Face) eventPaths() map[string]handler {
	paths := map[string]handler{
		"GET /events/sandboxes":        f.events,
		"GET /events/sandboxes/{id}":   f.events,
		"GET /events/webhooks":         f.webhooks,
		"POST /events/webhooks":        f.createWebhook,
		"GET /events/webhooks/{id}":    f.webhook,
		"PATCH /events/webhooks/{id}":  f.changeWebhook,
		"DELETE /events/webhooks/{id}": f.deleteWebhook,
	}
	if f.history == nil {
		for path := range paths {
			paths[path] = func(http.ResponseWriter, *http.Request) error {
				return unsupported("/events", "GET /v2/sandboxes has the states of sandboxes")
			}
		}
	}
	return paths
}

// events answers a page of events, the newest first. A sandbox that is not there any more has events, too.
func (f *Face) events(w http.ResponseWriter, r *http.Request) error {
	q, err := eventQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if id := strings.ToLower(r.PathValue("id")); id != "" {
		if !driver.LikeID(id) {
			return noSandbox(r.PathValue("id"))
		}
		q.Sandbox = driver.ID(id)
	}
	found := f.history.List(q)
	list := make([]*eventJSON, len(found))
	for i := range found {
		list[i] = eventOf(&found[i])
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func eventQuery(v url.Values) (q eventlog.Query, err error) {
	q.Limit = 10
	for name, to := range map[string]struct {
		n           *int
		least, most int
	}{"limit": {&q.Limit, 1, 100}, "offset": {&q.Offset, 0, eventlog.MaxEvents}} {
		if text := v.Get(name); text != "" {
			if *to.n, err = strconv.Atoi(text); err != nil || *to.n < to.least || *to.n > to.most {
				return q, badRequest("%s is %.20q; %d to %d are allowed", name, text, to.least, to.most)
			}
		}
	}
	if text := v.Get("orderAsc"); text != "" {
		if q.Ascending, err = strconv.ParseBool(text); err != nil {
			return q, badRequest("orderAsc is %.20q; true or false is needed", text)
		}
	}
	var types []string
	for _, text := range v["types"] {
		types = append(types, strings.Split(text, ",")...)
	}
	if len(types) > 0 {
		wanted, err := kindsOf("types", types)
		if err != nil {
			return q, err
		}
		q.Wanted = func(k driver.EventKind) bool { return slices.Contains(wanted, k) }
	}
	return q, nil
}

// kindsOf reads types of events.
func kindsOf(field string, types []string) (all []driver.EventKind, err error) {
	for _, name := range types {
		kind, ok := kinds[name]
		if !ok {
			return nil, badRequest("%s has %.80q; sandbox.lifecycle. and created, updated, paused, resumed, killed or checkpointed are the types",
				field, name)
		}
		all = append(all, kind)
	}
	return all, nil
}
