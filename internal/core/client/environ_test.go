//go:build linux

package client

import (
	"slices"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/process"
)

// TestWhatAProcessInherits: another user gets nothing of the daemon's user, and
// nobody the token.
func TestWhatAProcessInherits(t *testing.T) {
	daemon := []string{"PATH=/bin", "LANG=C", "LC_ALL=C", "TERM=x", "TZ=UTC", "HOME=/root", "USER=root", "LOGNAME=root",
		"TEND_TOKEN=s3cret", "AWS_SECRET_ACCESS_KEY=s3cret", "SSH_AUTH_SOCK=/tmp/agent", "LCX=1"}
	own, other := &credentials.Account{User: files.User{Name: "root", Home: "/root"}}, &credentials.Account{User: files.User{Name: "nobody", Home: "/nonexistent"}, Other: true}
	for _, tt := range []struct {
		name    string
		who     *credentials.Account
		inherit process.Inherit
		env     map[string]string
		want    []string
	}{
		{"the daemon's, for its user", own, process.InheritDaemon, nil,
			[]string{"AWS_SECRET_ACCESS_KEY=s3cret", "HOME=/root", "LANG=C", "LCX=1", "LC_ALL=C", "LOGNAME=root", "PATH=/bin", "SSH_AUTH_SOCK=/tmp/agent", "TERM=x", "TZ=UTC", "USER=root"}},
		{"the daemon's, for another user", other, process.InheritDaemon, nil,
			[]string{"HOME=/nonexistent", "LANG=C", "LC_ALL=C", "LOGNAME=nobody", "PATH=/bin", "TERM=x", "TZ=UTC", "USER=nobody"}},
		{"the user's", other, process.InheritUser, nil, []string{"HOME=/nonexistent", "LOGNAME=nobody", "PATH=/bin", "USER=nobody"}},
		{"none", other, process.InheritNone, nil, []string{}},
		{"what the spec says is given", other, process.InheritDaemon, map[string]string{"TEND_TOKEN": "mine", "AWS_SECRET_ACCESS_KEY": "mine"},
			[]string{"AWS_SECRET_ACCESS_KEY=mine", "HOME=/nonexistent", "LANG=C", "LC_ALL=C", "LOGNAME=nobody", "PATH=/bin", "TEND_TOKEN=mine", "TERM=x", "TZ=UTC", "USER=nobody"}},
	} {
		got := environ(&process.Spec{Inherit: tt.inherit, Env: tt.env}, tt.who, daemon)
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}
