package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
)

// Config of the page. All fields except Now and Log are required.
type Config struct {
	// Secret signs what the page presents.
	Secret *protocol.Secret
	// Token needed for a login. Empty: no login is needed.
	Token func() protocol.Token
	// File stores the sessions: an absolute path.
	File string
	// Now is the clock; nil: the machine's.
	Now func() time.Time
	Log *slog.Logger // nil: nothing is logged
}

// Page is the page as a part of the server.
type Page struct {
	cfg      Config
	sessions *sessions
	codes    codes
	files    map[string]*file // by path below /ui/
}

var _ module.Router = (*Page)(nil)

// New creates the page.
func New(cfg Config) (*Page, error) {
	if cfg.Secret == nil || cfg.Token == nil || cfg.File == "" {
		return nil, errors.New("the page needs a secret, a token and a file")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	kept, err := openSessions(cfg.Secret, cfg.Token, cfg.File, cfg.Now)
	if err != nil {
		return nil, err
	}
	return &Page{cfg: cfg, sessions: kept, codes: codes{now: cfg.Now}, files: built()}, nil
}

// Name implements [module.Part].
func (p *Page) Name() string { return "page" }

// Routes implements [module.Router]. The files hold no facts.
func (p *Page) Routes() []module.Route {
	return []module.Route{
		{Pattern: "GET /{$}", Handler: http.HandlerFunc(lead), Access: module.Open, Page: true},
		{Pattern: "GET /ui/", Handler: http.HandlerFunc(p.serveFile), Access: module.Open, Page: true},
		{Pattern: "GET /ui/session", Handler: http.HandlerFunc(p.tell), Access: module.Own, Page: true},
		{Pattern: "POST /ui/session", Handler: http.HandlerFunc(p.login), Access: module.Own, Page: true},
		{Pattern: "DELETE /ui/session", Handler: http.HandlerFunc(p.logout), Access: module.Own, Page: true},
		{Pattern: "DELETE /ui/readers", Handler: http.HandlerFunc(p.endReaders), Page: true},
	}
}

// lead leads a person who types the server's address into a browser to the page. Everybody
// else learns that there is nothing: a page of another origin that looks whether a server
// answers must not be led to what that origin may not load.
func lead(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, "/ui/", http.StatusFound)
}

// Login is the login of the browser that sent a request from the page.
func (p *Page) Login(r *http.Request) module.Login {
	f := p.sessions.of(r)
	if f.role != module.Nobody {
		return module.Login{Role: f.role, ID: f.hash, Lasts: func() bool { return p.sessions.role(f.hash) == f.role }, Body: f.body}
	}
	if r.Header.Get(proofHeader) == "" {
		return module.Login{}
	}
	return module.Login{Challenge: p.challenge(f)}
}

// challenge says what a proof must be for.
func (p *Page) challenge(f found) string {
	return fmt.Sprintf("%s run=%q, least=\"%d\"", proofHeader, p.sessions.run, f.least)
}

// Visitor names who opens the ports of sandboxes in a browser: the login with this ID, or, for
// "", whoever calls with the token of this moment.
func (p *Page) Visitor(login string) string {
	if login == "" {
		return p.sessions.mark(false)
	}
	return login
}

// VisitorLasts reports whether the login of a visitor has not ended, or the token is still the same.
func (p *Page) VisitorLasts(visitor string) bool {
	return visitor == p.sessions.mark(false) || p.sessions.role(visitor) == module.Owner
}

// Code creates a code for one login within a minute; reads: a read-only login. door: it is for
// the page's own port, where a login is always needed. Empty: none is needed.
func (p *Page) Code(reads, door bool) string {
	if !p.cfg.Token().Set() && !door {
		return ""
	}
	return p.codes.add(reads)
}

// needed reports whether a request needs a login.
func (p *Page) needed(r *http.Request) bool { return p.cfg.Token().Set() || module.AtDoor(r.Context()) }

// tell says whether a login is needed, and to whom it cannot tell by a proof, what that must be for.
func (p *Page) tell(w http.ResponseWriter, r *http.Request) {
	needed := p.needed(r)
	f := p.sessions.of(r)
	in := f.role != module.Nobody
	if needed && !in {
		w.Header().Set("WWW-Authenticate", p.challenge(f))
	}
	answer(w, http.StatusOK, map[string]any{"needed": needed, "in": !needed || in, "reads": needed && f.role == module.Reader})
}

// codeHeader carries a code. A login has no body, which nobody reads for a stranger.
const codeHeader = "Tend-Code"

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		refuse(w, http.StatusForbidden, "permission_denied", "only the page itself logs in; open it anew")
		return
	}
	token, code := p.cfg.Token(), r.Header.Get(codeHeader)
	used, reads := false, false
	if p.needed(r) && code != "" {
		used, reads = p.codes.use(code)
	}
	switch {
	case !p.needed(r):
		answer(w, http.StatusOK, map[string]any{})
		return
	case used:
	case code != "":
		refuse(w, http.StatusUnauthorized, "unauthenticated",
			"this link has been used, or is older than a minute; run tend ui again, or log in with the token")
		return
	case !token.Matches(protocol.Bearer(r)):
		refuse(w, http.StatusUnauthorized, "unauthenticated",
			"this is not the token of this server; it is in the file that tend serve got as --token-file")
		return
	}
	id, err := p.sessions.begin(reads)
	if err != nil {
		p.cfg.Log.Warn("no login to the page", slog.Any("err", err))
		refuse(w, http.StatusInternalServerError, "internal", fmt.Sprintf("the login cannot be kept: %v", err))
		return
	}
	forget(w, r) // the browser keeps one key, so it has no use for them
	tag := p.sessions.tag(id)
	http.SetCookie(w, cookie(r, cookieName(r, tag), id, lifetime))
	answer(w, http.StatusOK, map[string]any{"tag": tag, "key": p.sessions.key(id)})
}

func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	f := p.sessions.of(r)
	if f.role == module.Nobody {
		w.Header().Set("WWW-Authenticate", p.challenge(f))
		refuse(w, http.StatusUnauthorized, "unauthenticated", "this browser is not logged in")
		return
	}
	if err := p.sessions.end(f.id); err != nil {
		p.cfg.Log.Warn("no logout from the page", slog.Any("err", err))
		refuse(w, http.StatusInternalServerError, "internal", fmt.Sprintf("the logout cannot be kept: %v", err))
		return
	}
	forget(w, r)
	answer(w, http.StatusOK, map[string]any{})
}

// endReaders ends all read-only logins, and makes the codes for them void. Its route is for
// owners.
func (p *Page) endReaders(w http.ResponseWriter, _ *http.Request) {
	p.codes.endReaders()
	n, err := p.sessions.endReaders()
	if err != nil {
		p.cfg.Log.Warn("no end of the read-only logins", slog.Any("err", err))
		refuse(w, http.StatusInternalServerError, "internal", fmt.Sprintf("their end cannot be kept: %v", err))
		return
	}
	answer(w, http.StatusOK, map[string]any{"ended": n})
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]any{"code": code, "message": text})
}

func answer(w http.ResponseWriter, status int, m map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(m) // the client has left
}
