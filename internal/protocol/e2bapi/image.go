package e2bapi

import (
	"fmt"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// baseImage is what the SDKs' Template() begins with. It is base here, which has the programs of
// this machine.
var baseImage = lazyregexp.New(`^(docker\.io/)?e2bdev/base(:[A-Za-z0-9._-]+)?$`)

// registry are the credentials for the registry of an image, by the kind of it.
type registry struct {
	Type           string `json:"type"`
	Username       string `json:"username"`
	Password       string `json:"password"`
	ServiceAccount string `json:"serviceAccountJson"`
}

// maxCredential bounds each part of credentials, in bytes.
const maxCredential = 64 << 10

// pull is the image that a build asks for, with the credentials for it; no name: none is asked
// for. The request is no owner's: it is fetched without this machine's credentials, and from no
// address of this machine.
func (q *buildRequest) pull() (p driver.Pull, err error) {
	if q.FromImage == "" || baseImage.MatchString(q.FromImage) {
		return p, nil
	}
	p.Name = q.FromImage
	switch c := q.Registry; c.Type {
	case "":
	case "registry":
		p.User, p.Password = c.Username, c.Password
	case "gcp":
		p.User, p.Password = "_json_key", c.ServiceAccount
	case "aws":
		return p, fmt.Errorf("image %.200s: keys of AWS are not exchanged for a password by this server; give fromImage the username AWS "+
			"and the password that `aws ecr get-login-password` prints", p.Name)
	default:
		return p, fmt.Errorf("image %.200s: fromImageRegistry.type is %.40q; registry and gcp are known", p.Name, c.Type)
	}
	if q.Registry.Type != "" && (p.User == "" || p.Password == "") {
		return p, fmt.Errorf("image %.200s: fromImageRegistry has no user, or no password; give both, or leave it out", p.Name)
	}
	if len(p.User) > maxCredential || len(p.Password) > maxCredential {
		return p, fmt.Errorf("image %.200s: the credentials for its registry have more than %d bytes", p.Name, maxCredential)
	}
	return p, nil
}
