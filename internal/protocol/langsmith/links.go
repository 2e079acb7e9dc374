package langsmith

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	defaultServiceTTL = 600
	maxServiceTTL     = 86400
)

// grant is what a link allows. It is signed, so nothing of it is kept here.
type grant struct {
	Kind        string `json:"k"` // one of the words below
	Box         string `json:"b"`
	Path        string `json:"p,omitempty"`
	Port        int    `json:"n,omitempty"`
	Expires     int64  `json:"e,omitempty"` // unix seconds; 0: never
	Type        string `json:"t,omitempty"` // Content-Type
	Disposition string `json:"d,omitempty"`
}

// Kinds of grants.
const (
	grantFile    = "file"
	grantService = "service"
	grantPage    = "page" // a service, by a token in the path
)

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

// errLink is the one answer to all links that are not valid: callers without a key
// do not learn whether there is such a box.
var errLink = &problem{http.StatusForbidden, kindDenied, "the link's token is not valid for this path; ask for a new link"}

// open opens a token of one of the kinds.
func (f *Face) open(token string, kinds ...string) (*grant, error) {
	body, mac, ok := strings.Cut(token, ".")
	if !ok || len(token) > 16<<10 {
		return nil, errLink
	}
	b, err1 := base64.RawURLEncoding.DecodeString(body)
	m, err2 := base64.RawURLEncoding.DecodeString(mac)
	g := new(grant)
	if err1 != nil || err2 != nil || subtle.ConstantTimeCompare(m, f.mac(b)) != 1 || json.Unmarshal(b, g) != nil ||
		!slices.Contains(kinds, g.Kind) {
		return nil, errLink
	}
	if g.Expires != 0 && time.Now().Unix() >= g.Expires {
		return nil, &problem{http.StatusForbidden, kindDenied, "the link has expired; ask for a new one"}
	}
	return g, nil
}

// granted finds the box of a grant. The path has to name it, too.
func (f *Face) granted(r *http.Request, g *grant) (driver.Sandbox, error) {
	box, err := f.driver.Get(r.Context(), g.Box)
	if err != nil {
		return nil, err
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return nil, err
	}
	if named := r.PathValue("box"); named != string(info.ID) && named != info.Name {
		return nil, errLink
	}
	return box, nil
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
	token := f.sign(&grant{Kind: grantService, Box: string(info.ID), Port: req.Port, Expires: expires.Unix()})
	service := protocol.Origin(f.publicURL, r) + dataPath + string(info.ID) + "/service/" + strconv.Itoa(req.Port) + "/"
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
		return &driver.InvalidError{Field: "content_disposition", Reason: "is " + strconv.Quote(req.ContentDisposition) +
			"; attachment and inline are allowed"}
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
	g := &grant{Kind: grantFile, Box: string(info.ID), Path: req.Path, Type: req.ContentType, Disposition: req.ContentDisposition}
	answer := map[string]string{}
	if req.ExpiresInSeconds != nil {
		expires := time.Now().Add(time.Duration(*req.ExpiresInSeconds) * time.Second).Truncate(time.Second)
		g.Expires = expires.Unix()
		answer["expires_at"] = stamp(expires)
	}
	token := f.sign(g)
	answer["token"] = token
	answer["download_url"] = protocol.Origin(f.publicURL, r) + dataPath + string(info.ID) + "/link/" + token
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// followLink serves the file of a link: GET and HEAD, with ranges.
func (f *Face) followLink(w http.ResponseWriter, r *http.Request) error {
	g, err := f.open(r.PathValue("token"), grantFile)
	if err != nil {
		return err
	}
	box, err := f.granted(r, g)
	if err != nil {
		return err
	}
	f.serveFile(w, r, box, g)
	return nil
}
