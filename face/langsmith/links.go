package langsmith

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/face"
)

const (
	serviceTokenHeader = "X-Langsmith-Sandbox-Service-Token"
	serviceCookie      = "langsmith-sandbox-service-token"
	// serviceQuery opens a service in a browser, which then has the cookie.
	serviceQuery = "_langsmith_service_token"

	defaultServiceTTL = 600
	maxServiceTTL     = 86400
)

// grant is what a link allows. It is signed, so nothing of it is kept here.
type grant struct {
	Kind        string `json:"k"` // "file" or "service"
	Box         string `json:"b"`
	Path        string `json:"p,omitempty"`
	Port        int    `json:"n,omitempty"`
	Expires     int64  `json:"e,omitempty"` // unix seconds; 0: never
	Type        string `json:"t,omitempty"` // Content-Type
	Disposition string `json:"d,omitempty"`
}

// sign makes the token of a grant.
func (f *Face) sign(g *grant) string {
	b, err := json.Marshal(g)
	if err != nil { // impossible: strings and numbers
		return ""
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(b) + "." + enc.EncodeToString(f.mac(b))
}

func (f *Face) mac(b []byte) []byte {
	h := hmac.New(sha256.New, f.secret)
	h.Write(b)
	return h.Sum(nil)
}

// check opens a token.
func (f *Face) check(token, kind string, box driver.ID) (*grant, error) {
	refused := &problemError{problem{http.StatusForbidden, kindDenied, "the link's token is not valid for this path; ask for a new link"}}
	body, mac, ok := strings.Cut(token, ".")
	if !ok || len(token) > 16<<10 {
		return nil, refused
	}
	b, err1 := base64.RawURLEncoding.DecodeString(body)
	m, err2 := base64.RawURLEncoding.DecodeString(mac)
	g := new(grant)
	if err1 != nil || err2 != nil || subtle.ConstantTimeCompare(m, f.mac(b)) != 1 || json.Unmarshal(b, g) != nil || g.Kind != kind || g.Box != string(box) {
		return nil, refused
	}
	if g.Expires != 0 && time.Now().Unix() >= g.Expires {
		return nil, &problemError{problem{http.StatusForbidden, kindDenied, "the link has expired; ask for a new one"}}
	}
	return g, nil
}

// serviceURL makes a link to a port: POST /boxes/{name}/service-url.
func (f *Face) serviceURL(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Port             int             `json:"port"`
		ExpiresInSeconds *int64          `json:"expires_in_seconds"`
		Access           string          `json:"access"`
		EmbedOrigins     json.RawMessage `json:"embed_origins"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	if asks(req.EmbedOrigins) {
		return unsupported("embed_origins", "the link can be opened in a tab, and not inside a page of another origin")
	}
	ttl := int64(defaultServiceTTL)
	if req.ExpiresInSeconds != nil {
		ttl = *req.ExpiresInSeconds
	}
	switch {
	case req.Port < 1 || req.Port > 65535:
		return &driver.InvalidError{Field: "port", Reason: "is " + strconv.Itoa(req.Port) + "; 1 to 65535 are allowed"}
	case ttl < 1 || ttl > maxServiceTTL:
		return &driver.InvalidError{Field: "expires_in_seconds", Reason: "is " + strconv.FormatInt(ttl, 10) + "; 1 to 86400 are allowed"}
	case req.Access != "" && req.Access != "restricted" && req.Access != "workspace" && req.Access != "off":
		return &driver.InvalidError{Field: "access", Reason: "is " + strconv.Quote(req.Access) + "; restricted, workspace and off are allowed"}
	}
	box, err := f.boxOf(r)
	if err != nil {
		return err
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	expires := time.Now().Add(time.Duration(ttl) * time.Second)
	token := f.sign(&grant{Kind: "service", Box: string(info.ID), Port: req.Port, Expires: expires.Unix()})
	service := f.base(r) + dataPath + string(info.ID) + "/service/" + strconv.Itoa(req.Port) + "/"
	answer := map[string]string{
		"service_url": service, "browser_url": service + "?" + serviceQuery + "=" + token,
		"token": token, "expires_at": stamp(expires.Truncate(time.Second)),
	}
	if req.Access != "" && req.Access != "off" {
		answer["access"] = req.Access
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// service passes a request on to a port of the box.
func (f *Face) service(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		return requestErrorf("the port %.20q is no number", r.PathValue("port"))
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	prefix := dataPath + r.PathValue("box") + "/service/" + r.PathValue("port")
	token := r.Header.Get(serviceTokenHeader)
	query := r.URL.Query().Get(serviceQuery)
	if token == "" {
		token = query
	}
	if c, err := r.Cookie(serviceCookie); token == "" && err == nil {
		token = c.Value
	}
	g, err := f.check(token, "service", info.ID)
	if err != nil {
		return err
	}
	if g.Port != port {
		return &problemError{problem{http.StatusForbidden, kindDenied, "the link's token is for another port"}}
	}
	if query != "" && r.Method == http.MethodGet {
		// The token goes from the address bar into a cookie.
		http.SetCookie(w, &http.Cookie{Name: serviceCookie, Value: token, Path: prefix + "/", Expires: time.Unix(g.Expires, 0), HttpOnly: true, SameSite: http.SameSiteLaxMode})
		rest := r.URL.Query()
		rest.Del(serviceQuery)
		to := url.URL{Path: r.URL.Path, RawQuery: rest.Encode()}
		http.Redirect(w, r, to.String(), http.StatusFound)
		return nil
	}
	f.proxy(box, port, prefix).ServeHTTP(w, r)
	return nil
}

// proxy passes requests on without what was meant for this server.
func (f *Face) proxy(box driver.Sandbox, port int, prefix string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "127.0.0.1:"+strconv.Itoa(port)
			p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, prefix)
			p.Out.URL.RawPath = strings.TrimPrefix(p.In.URL.RawPath, prefix)
			p.Out.Host = p.Out.URL.Host
			p.SetXForwarded()
			p.Out.Header.Set("X-Forwarded-Prefix", prefix)
			p.Out.Header.Del(serviceTokenHeader)
			p.Out.Header.Del("X-Api-Key")
			if f.token().Matches(face.Bearer(p.In)) { // any other is the service's own
				p.Out.Header.Del("Authorization")
			}
			dropCookie(p.Out, serviceCookie)
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return box.Dial(ctx, port) },
			// A transport for each request: nothing is kept open behind it.
			DisableKeepAlives: true,
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeError(w, http.StatusBadGateway, kindConnection, "nothing answers on port "+strconv.Itoa(port)+" of the sandbox: "+err.Error())
		},
		FlushInterval: -1,
	}
}

// dropCookie takes our own cookie out of a request.
func dropCookie(r *http.Request, name string) {
	cookies := r.Cookies()
	r.Header.Del("Cookie")
	for _, c := range cookies {
		if c.Name != name {
			r.AddCookie(c)
		}
	}
}

// downloadURL makes a link to a file: POST /boxes/{name}/download-url.
func (f *Face) downloadURL(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Path               string          `json:"path"`
		ExpiresInSeconds   *int64          `json:"expires_in_seconds"`
		ContentType        string          `json:"content_type"`
		ContentDisposition string          `json:"content_disposition"`
		CSPSandbox         *bool           `json:"csp_sandbox"` // true is how it is here
		CSPSandboxFlags    json.RawMessage `json:"csp_sandbox_flags"`
		CSPSourceBundles   json.RawMessage `json:"csp_source_bundles"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	switch {
	case req.CSPSandbox != nil && !*req.CSPSandbox:
		return unsupported("csp_sandbox: false", "a file is never served as a page of this server")
	case asks(req.CSPSandboxFlags):
		return unsupported("csp_sandbox_flags", "leave it out")
	case asks(req.CSPSourceBundles):
		return unsupported("csp_source_bundles", "leave it out")
	}
	switch {
	case req.Path == "":
		return &driver.InvalidError{Field: "path", Reason: "is missing"}
	case req.ExpiresInSeconds != nil && (*req.ExpiresInSeconds < 1 || *req.ExpiresInSeconds > int64(driver.MaxTTL/time.Second)):
		return &driver.InvalidError{Field: "expires_in_seconds", Reason: "is not positive, or longer than ten years"}
	case req.ContentDisposition != "" && req.ContentDisposition != "attachment" && req.ContentDisposition != "inline":
		return &driver.InvalidError{Field: "content_disposition", Reason: "is " + strconv.Quote(req.ContentDisposition) + "; attachment and inline are allowed"}
	case len(req.Path) > 4095 || len(req.ContentType) > 256 || strings.ContainsAny(req.ContentType, "\r\n"):
		return &driver.InvalidError{Field: "path", Reason: "or content_type is too long, or has a line break"}
	}
	box, err := f.boxOf(r)
	if err != nil {
		return err
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	g := &grant{Kind: "file", Box: string(info.ID), Path: req.Path, Type: req.ContentType, Disposition: req.ContentDisposition}
	answer := map[string]string{}
	if req.ExpiresInSeconds != nil {
		expires := time.Now().Add(time.Duration(*req.ExpiresInSeconds) * time.Second).Truncate(time.Second)
		g.Expires = expires.Unix()
		answer["expires_at"] = stamp(expires)
	}
	token := f.sign(g)
	answer["token"] = token
	answer["download_url"] = f.base(r) + dataPath + string(info.ID) + "/link/" + token
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// followLink serves the file of a link: GET and HEAD, with ranges.
func (f *Face) followLink(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	g, err := f.check(r.PathValue("token"), "file", info.ID)
	if err != nil {
		return err
	}
	f.serveFile(w, r, box, g)
	return nil
}
