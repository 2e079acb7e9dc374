package langsmith

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	serviceTokenHeader = "X-Langsmith-Sandbox-Service-Token"
	serviceCookie      = "langsmith-sandbox-service-token"
	// serviceQuery opens a service in a browser, which then has the cookie.
	serviceQuery = "_langsmith_service_token"
	// pageMark begins the first name of a path that is a token: pages have an
	// origin of their own, so what they load comes without the cookie.
	pageMark = "~"
)

// pagePolicy is what a browser lets a page of a service do. It has no origin:
// with this server's it could start programs here as the person who looks at
// it. See docs/protocols/langsmith.md for what that means to the page.
const pagePolicy = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox allow-downloads allow-pointer-lock allow-presentation allow-orientation-lock"

// visit is one request to a service.
type visit struct {
	box    driver.Sandbox
	port   int
	prefix string        // of the path, without a slash at its end
	page   bool          // the token is in the path
	held   budget.Charge // for what is held of the answer
}

// pieceSize is what the proxy holds of an answer at a time, in each direction of an upgraded
// connection, in bytes.
const pieceSize = 64 << 10

// service passes a request on to a port of the box.
func (f *Face) service(w http.ResponseWriter, r *http.Request) error {
	v := &visit{prefix: dataPath + r.PathValue("box") + "/service/" + r.PathValue("port")}
	query := r.URL.Query().Get(serviceQuery)
	g, err := f.visitor(v, r, query)
	if err != nil {
		return err
	}
	if v.port, err = strconv.Atoi(r.PathValue("port")); err != nil || g.Port != v.port {
		return &problem{http.StatusForbidden, kindDenied, "the link's token is for another port"}
	}
	if v.box, err = f.granted(r, g); err != nil {
		return err
	}
	switch {
	case query != "" && r.Method == http.MethodGet && !v.page:
		f.openPage(w, r, v, g, query)
		return nil
	case v.page && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "":
		allowPage(w, r)
		return nil
	}
	of := budget.Sandbox(g.Box)
	budget.Of(r.Context()).For(of)
	v.held.On(f.budget, of)
	defer v.held.Release()
	if err := v.held.Add(pieceSize); err != nil {
		return err
	}
	f.proxy(v).ServeHTTP(w, r)
	return nil
}

// visitor finds the token of a request: in the path, a header, the query, or a
// cookie where that counts.
func (f *Face) visitor(v *visit, r *http.Request, query string) (*grant, error) {
	if token, ok := pageToken(strings.TrimPrefix(r.URL.Path, v.prefix)); ok {
		if g, err := f.open(token, grantPage); err == nil {
			v.page, v.prefix = true, v.prefix+"/"+pageMark+token
			return g, nil
		}
	}
	token := cmp.Or(r.Header.Get(serviceTokenHeader), query)
	if c, err := r.Cookie(serviceCookie); token == "" && err == nil && typed(r) {
		token = c.Value
	}
	return f.open(token, grantService)
}

// typed reports whether the cookie counts: it is for addresses that a person types, and what a
// page of the service loads comes without it. Pages of other ports of this host cause requests
// with the cookie. Browsers say who has caused a request, at least of a WebSocket and of what
// changes something.
func typed(r *http.Request) bool {
	if r.Header.Get("Sec-Fetch-Site") != "" {
		return protocol.CausedHere(r)
	}
	return r.Header.Get("Origin") == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// pageToken is the token that a path begins with.
func pageToken(path string) (string, bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	token, ok := strings.CutPrefix(first, pageMark)
	return token, ok && strings.Contains(token, ".")
}

// CarriesToken reports whether the path of a request has the token of a link. A foreign
// page cannot guess such a path, so the guard need not check it; the token is still
// checked.
func CarriesToken(path string) bool {
	rest, ok := strings.CutPrefix(path, dataPath)
	if !ok {
		return false
	}
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) != 4 || parts[1] != "service" {
		return false
	}
	_, ok = pageToken(parts[3])
	return ok
}

// openPage takes the token out of the address bar: into a cookie, for addresses
// that are typed, and, as another token that is good for pages only, into the
// path, for what the page loads.
func (f *Face) openPage(w http.ResponseWriter, r *http.Request, v *visit, g *grant, token string) {
	http.SetCookie(w, &http.Cookie{Name: serviceCookie, Value: token, Path: v.prefix + "/", Expires: time.Unix(g.Expires, 0),
		HttpOnly: true, SameSite: http.SameSiteLaxMode})
	rest := r.URL.Query()
	rest.Del(serviceQuery)
	page := f.sign(&grant{Kind: grantPage, Box: g.Box, Port: g.Port, Expires: g.Expires})
	to := url.URL{Path: v.prefix + "/" + pageMark + page + strings.TrimPrefix(r.URL.Path, v.prefix), RawQuery: rest.Encode()}
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// allowPage answers the question that a browser asks before a page without an
// origin may send a request: every caller that knows the path may.
func allowPage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// proxy passes requests on without what was meant for this server, and answers
// without what would act on it.
func (f *Face) proxy(v *visit) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "127.0.0.1:"+strconv.Itoa(v.port)
			p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, v.prefix)
			p.Out.URL.RawPath = strings.TrimPrefix(p.In.URL.RawPath, v.prefix)
			p.Out.Host = p.Out.URL.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // what Go cannot read, such as ;, is the program's to read
			f.proxies.Forward(p)
			p.Out.Header.Set("X-Forwarded-Prefix", v.prefix)
			f.dropSecrets(p.Out)
		},
		ModifyResponse: func(res *http.Response) error {
			v.contain(res.Header)
			return nil
		},
		Transport: protocol.Heads(&http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, err := v.box.Dial(ctx, v.port)
				if err != nil {
					return nil, err
				}
				return protocol.HeadConn(c), nil
			},
			MaxResponseHeaderBytes: protocol.MaxAnswerHeader,
			// A transport for each request: nothing is kept open behind it.
			DisableKeepAlives: true,
		}, &v.held),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if _, busy := errors.AsType[*budget.BusyError](err); busy {
				f.refuse(w, err)
				return
			}
			writeError(w, http.StatusBadGateway, kindConnection, "nothing answers on port "+strconv.Itoa(v.port)+" of the sandbox: "+err.Error())
		},
		FlushInterval: -1,
	}
}

// dropSecrets removes from a request the credentials for this server. An Authorization that
// is not ours belongs to the program.
func (f *Face) dropSecrets(r *http.Request) {
	for _, name := range []string{serviceTokenHeader, "X-Api-Key", "X-Access-Token"} {
		r.Header.Del(name)
	}
	for _, value := range r.Header.Values("Authorization") {
		if f.isOurs(value) {
			r.Header.Del("Authorization")
			break
		}
	}
	protocol.DropOwnCookies(r.Header)
	r.URL.RawQuery = withoutField(r.URL.RawQuery, serviceQuery)
}

// withoutField removes a field from a query, and leaves the rest byte for byte: a program's query need not be a form.
func withoutField(query, name string) string {
	fields := strings.Split(query, "&")
	return strings.Join(slices.DeleteFunc(fields, func(field string) bool {
		key, _, _ := strings.Cut(field, "=")
		plain, err := url.QueryUnescape(key)
		return err == nil && plain == name
	}), "&")
}

// isOurs reports whether an Authorization is for this server: its token, in
// any form, or a name with no password, which says for whom envd acts.
func (f *Face) isOurs(authorization string) bool {
	r := &http.Request{Header: http.Header{"Authorization": {authorization}}}
	token := f.token()
	name, password, basic := r.BasicAuth()
	if basic {
		return password == "" || token.Matches(password) || token.Matches(name)
	}
	_, rest, _ := strings.Cut(authorization, " ")
	return token.Matches(protocol.Bearer(r)) || token.Matches(strings.TrimSpace(rest)) || token.Matches(authorization)
}

// contain restricts an answer to its own path: its pages get no origin, its cookies and
// redirections stay within the path, and headers about the whole host are removed.
func (v *visit) contain(h http.Header) {
	h.Add("Content-Security-Policy", pagePolicy) // beside its own: browsers obey both
	protocol.DropHostWide(h)
	if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, v.prefix+"/") {
		h.Set("Location", v.prefix+to)
	}
	cookies := (&http.Response{Header: h}).Cookies()
	h.Del("Set-Cookie")
	for _, c := range cookies {
		if c.Name == serviceCookie {
			continue
		}
		c.Domain = ""
		if !strings.HasPrefix(c.Path, "/") {
			c.Path = "/"
		}
		c.Path = v.prefix + c.Path
		if text := c.String(); text != "" {
			h.Add("Set-Cookie", text)
		}
	}
	if v.page && h.Get("Access-Control-Allow-Origin") == "" {
		h.Set("Access-Control-Allow-Origin", "*")
	}
	if v.page && h.Get("Referrer-Policy") == "" {
		h.Set("Referrer-Policy", "no-referrer") // its address is its key
	}
}
