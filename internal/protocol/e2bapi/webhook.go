package e2bapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// Bounds of webhooks.
const (
	maxHooks     = 32
	maxHookName  = 256 // bytes
	maxHookURL   = 2048
	minSecret    = 8
	maxSecret    = 512
	maxHooksFile = 1 << 20
)

// hook is a webhook. The JSON names are the format on disk.
type hook struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	URL     string    `json:"url"`
	Enabled bool      `json:"enabled"`
	Events  []string  `json:"events"`
	Secret  string    `json:"secret"`
	Created time.Time `json:"created"`
	// After is the number of the event that was delivered last, or given up.
	After int64 `json:"after"`
}

func (h *hook) wants(kind driver.EventKind) bool {
	return slices.ContainsFunc(h.Events, func(name string) bool { return kinds[name] == kind })
}

// hookJSON is a webhook in answers, never with its secret. Clients know the team by two spellings.
type hookJSON struct {
	ID        string   `json:"id"`
	TeamID    string   `json:"teamID"`
	TeamIDNew string   `json:"teamId"`
	Name      string   `json:"name"`
	CreatedAt string   `json:"createdAt"`
	Enabled   bool     `json:"enabled"`
	URL       string   `json:"url"`
	Events    []string `json:"events"`
}

func (h *hook) json() hookJSON {
	return hookJSON{h.ID, teamID, teamID, h.Name, stamp(h.Created), h.Enabled, h.URL, h.Events}
}

// hooks are all webhooks, kept in a file. What is changed has its goroutine begin anew.
type hooks struct {
	path string

	mu      sync.Mutex
	all     []*hook           // oldest first; what one holds is never changed, only replaced; guarded by mu
	restart func(*hook, bool) // set while deliveries are made: the hook is new or changed, or (false) gone; guarded by mu
}

func openHooks(path string) (*hooks, error) {
	h := &hooks{path: path}
	text, err := atomicfile.Read(path, maxHooksFile)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &h.all)
	}
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	return h, nil
}

// save keeps what all would be, and then it is so. mu is held.
func (h *hooks) save(all []*hook) error {
	text, err := json.Marshal(all)
	if err == nil {
		err = atomicfile.File(h.path, text, 0o600)
	}
	if err == nil {
		h.all = all
	}
	return err
}

func (h *hooks) index(id string) int {
	return slices.IndexFunc(h.all, func(one *hook) bool { return one.ID == id })
}

// get finds one; nil: there is none.
func (h *hooks) get(id string) *hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.index(id); i >= 0 {
		return h.all[i]
	}
	return nil
}

// change replaces one by what f makes of it; nil: it goes.
func (h *hooks) change(id string, f func(hook) (*hook, error)) (*hook, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.index(id)
	if i < 0 {
		return nil, noWebhook(id)
	}
	next, err := f(*h.all[i])
	if err != nil {
		return nil, err
	}
	all, old := slices.Clone(h.all), h.all[i]
	if next == nil {
		all = slices.Delete(all, i, i+1)
	} else {
		all[i] = next
	}
	if err := h.save(all); err != nil {
		return nil, err
	}
	if h.restart != nil {
		h.restart(cmp.Or(next, old), next != nil)
	}
	return next, nil
}

// delivered notes how far the deliveries of one are.
func (h *hooks) delivered(id string, seq int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.index(id)
	if i < 0 {
		return nil
	}
	next := *h.all[i]
	next.After = max(next.After, seq) // one that was changed meanwhile may be further
	all := slices.Clone(h.all)
	all[i] = &next
	return h.save(all)
}

func noWebhook(id string) error {
	return &problem{http.StatusNotFound, fmt.Sprintf("webhook %.100q not found", id)}
}

// hookRequest is the body of a creation, and of a change, of which what is missing stays.
type hookRequest struct {
	Name    *string  `json:"name"`
	URL     *string  `json:"url"`
	Enabled *bool    `json:"enabled"`
	Events  []string `json:"events"`
	Secret  *string  `json:"signatureSecret"`
	Secret2 *string  `json:"signature_secret"` // of some clients
}

// apply checks what is there, and puts it into a hook.
func (f *Face) applyHook(req *hookRequest, to *hook) error {
	if req.Name != nil {
		to.Name = *req.Name
	}
	if len(to.Name) > maxHookName || strings.ContainsFunc(to.Name, func(r rune) bool { return r < ' ' }) {
		return badRequest("name has %d bytes or a control character; at most %d bytes are allowed", len(to.Name), maxHookName)
	}
	if req.Enabled != nil {
		to.Enabled = *req.Enabled
	}
	if req.URL != nil {
		if err := f.checkHookURL(*req.URL); err != nil {
			return err
		}
		to.URL = *req.URL
	}
	if secret := cmp.Or(req.Secret, req.Secret2); secret != nil {
		if len(*secret) < minSecret || len(*secret) > maxSecret {
			return badRequest("signatureSecret has %d bytes; %d to %d are allowed", len(*secret), minSecret, maxSecret)
		}
		to.Secret = *secret
	}
	if req.Events != nil {
		if _, err := kindsOf("events", req.Events); err != nil {
			return err
		}
		to.Events = slices.Compact(slices.Sorted(slices.Values(req.Events)))
	}
	switch {
	case to.URL == "":
		return badRequest("url is missing")
	case to.Secret == "":
		return badRequest("signatureSecret is missing: deliveries are signed")
	case len(to.Events) == 0:
		return badRequest("events is missing or empty; name at least one type, such as sandbox.lifecycle.created")
	}
	return nil
}

// checkHookURL refuses what can never be delivered to. Where a name leads is looked at whenever it is connected to.
func (f *Face) checkHookURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxHookURL || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return badRequest("url is %.100q; one of https or http with a host, without a name and password, of at most %d bytes is needed",
			text, maxHookURL)
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		return badRequest("url has the port %.20q; 1 to 65535 are allowed", u.Port())
	}
	if err := f.refuses(netip.AddrPortFrom(a, uint16(port))); err != nil {
		return badRequest("url leads where no webhook goes: %v", err)
	}
	return nil
}

func (f *Face) webhooks(w http.ResponseWriter, _ *http.Request) error {
	f.hooks.mu.Lock()
	all := f.hooks.all
	f.hooks.mu.Unlock()
	list := make([]hookJSON, len(all))
	for i, h := range all {
		list[i] = h.json()
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (f *Face) createWebhook(w http.ResponseWriter, r *http.Request) error {
	var req hookRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	// It hears of what happens from now on.
	made := &hook{ID: string(driver.NewVolumeID()), Enabled: true, Created: time.Now().UTC(), After: f.history.Last()}
	if err := f.applyHook(&req, made); err != nil {
		return err
	}
	f.hooks.mu.Lock()
	defer f.hooks.mu.Unlock()
	if len(f.hooks.all) >= maxHooks {
		return fmt.Errorf("there are %d webhooks, which is the limit; delete one: %w", maxHooks, process.ErrLimit)
	}
	if err := f.hooks.save(append(slices.Clone(f.hooks.all), made)); err != nil {
		return err
	}
	if f.hooks.restart != nil {
		f.hooks.restart(made, true)
	}
	writeJSON(w, http.StatusCreated, made.json())
	return nil
}

func (f *Face) webhook(w http.ResponseWriter, r *http.Request) error {
	h := f.hooks.get(r.PathValue("id"))
	if h == nil {
		return noWebhook(r.PathValue("id"))
	}
	writeJSON(w, http.StatusOK, h.json())
	return nil
}

func (f *Face) changeWebhook(w http.ResponseWriter, r *http.Request) error {
	var req hookRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	h, err := f.hooks.change(r.PathValue("id"), func(h hook) (*hook, error) {
		was := h.Enabled
		err := f.applyHook(&req, &h)
		if h.Enabled && !was { // what happened meanwhile is not for it
			h.After = f.history.Last()
		}
		return &h, err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, h.json())
	return nil
}

func (f *Face) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	if _, err := f.hooks.change(r.PathValue("id"), func(hook) (*hook, error) { return nil, nil }); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct{}{})
	return nil
}
