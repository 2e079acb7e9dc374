package tend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
)

// Status is what a daemon reports about itself.
type Status struct {
	Version  string
	URL      string
	StateDir string
	// Roles holds the pids of anchor, keeper and server.
	Roles     map[string]int
	Processes int
	// Promises says what this machine allows, by name.
	Promises map[string]Promise
	// Parts holds what the driver and the parts of the server say of themselves: a
	// few words each, by part and name.
	Parts map[string]map[string]string
}

// Promise is something tend does where the kernel lets it.
type Promise struct {
	Kept bool
	// Detail says what happens instead, and what would help.
	Detail string
}

// Upgrade says which parts of the daemon to replace.
type Upgrade struct {
	Server, Keeper bool // neither means both
	// Binary is the new program, an absolute path on the daemon's machine.
	// Empty: the one it was started from.
	Binary string
}

// Status asks the daemon about itself.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, unary(c.admin.Status, &tendv1.StatusRequest{}, func(m *tendv1.StatusResponse) error {
		s = Status{
			Version: tendpb.CleanName(m.GetVersion()), URL: tendpb.CleanName(m.GetUrl()), StateDir: tendpb.CleanName(m.GetStateDir()),
			Processes: int(m.GetProcesses()),
			Roles:     roles(m.GetRoles()), Promises: make(map[string]Promise, len(m.GetPromises())),
			Parts: make(map[string]map[string]string, len(m.GetParts())),
		}
		for name, p := range m.GetParts() {
			facts := make(map[string]string, len(p.GetFacts()))
			for fact, text := range p.GetFacts() {
				facts[tendpb.CleanName(fact)] = tendpb.CleanText(text)
			}
			s.Parts[tendpb.CleanName(name)] = facts
		}
		for name, p := range m.GetPromises() {
			s.Promises[tendpb.CleanName(name)] = Promise{Kept: p.GetKept(), Detail: tendpb.CleanText(p.GetDetail())}
		}
		return nil
	}))
	return s, err
}

// Upgrade replaces roles of the daemon in place; processes and their output are not
// affected. It returns the pids of the roles afterwards. The call is not repeated if
// the answer is lost: call Status then.
func (c *Client) Upgrade(ctx context.Context, u Upgrade) (map[string]int, error) {
	var pids map[string]int
	req := &tendv1.UpgradeRequest{Server: u.Server, Keeper: u.Keeper, Binary: u.Binary}
	err := c.once(ctx, unary(c.admin.Upgrade, req, func(m *tendv1.UpgradeResponse) error {
		pids = roles(m.GetRoles())
		return nil
	}))
	return pids, err
}

// Shutdown ends the daemon. It also ends the processes, unless keep is true: then the
// next daemon on the same state directory takes them over.
func (c *Client) Shutdown(ctx context.Context, keep bool) error {
	return c.once(ctx, unary(c.admin.Shutdown, &tendv1.ShutdownRequest{Keep: keep}, nil))
}

// Page is the address of a daemon's web page.
type Page struct {
	// URL as the daemon knows it; empty: the daemon has no TCP port, so no browser can
	// reach it.
	URL string
	// Code logs a browser in once, within a minute; append it to the URL as the fragment
	// "code=". Empty: no login is needed.
	Code string
}

// OpenPage lets a browser log in to the daemon's page.
func (c *Client) OpenPage(ctx context.Context) (Page, error) { return c.openPage(ctx, false) }

// OpenPageReadOnly lets a browser log in read-only: it sees everything except values of
// environment variables, files and tokens, and can change nothing. A daemon without a
// token has no such login: the error is process.ErrUnsupported.
func (c *Client) OpenPageReadOnly(ctx context.Context) (Page, error) { return c.openPage(ctx, true) }

// EndReadOnlyLogins ends all read-only logins to the daemon's page, whoever has them, with what
// they have opened, and makes links for them void. It returns how many logins there were.
func (c *Client) EndReadOnlyLogins(ctx context.Context) (int, error) {
	var said struct {
		Ended int `json:"ended"`
	}
	err := c.call(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.base+"/ui/readers", nil)
		if err != nil {
			return err
		}
		resp, err := c.conns.RoundTrip(req)
		if _, told := errors.AsType[*connect.Error](err); err != nil && !told {
			err = connect.NewError(connect.CodeUnavailable, err)
		}
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return refusal(resp)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxErrorBody)).Decode(&said); err != nil {
			return strange("%s", "the answer about read-only logins cannot be read")
		}
		return nil
	})
	return max(0, said.Ended), err
}

func (c *Client) openPage(ctx context.Context, reads bool) (Page, error) {
	var p Page
	err := c.call(ctx, unary(c.admin.OpenPage, &tendv1.OpenPageRequest{ReadOnly: reads}, func(m *tendv1.OpenPageResponse) error {
		if reads && !m.GetReadOnly() {
			return formerVersion("knows no login for reading alone, it is")
		}
		p = Page{URL: tendpb.CleanName(m.GetUrl()), Code: tendpb.CleanName(m.GetCode())}
		return nil
	}))
	return p, err
}

func roles(m map[string]*tendv1.Role) map[string]int {
	out := make(map[string]int, len(m))
	for name, r := range m {
		out[tendpb.CleanName(name)] = int(r.GetPid())
	}
	return out
}
