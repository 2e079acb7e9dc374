package git

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// settings override those of the repository. What names a program names one that does nothing
// and fails: for some of them git takes its own if the value is empty.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null",
	"core.splitIndex=false", "core.logAllRefUpdates=true", "core.quotePath=true",
	"core.pager=cat", "core.editor=false", "core.askPass=false", "core.sshCommand=false", "core.gitProxy=false",
	"core.alternateRefsCommand=false",
	"sequence.editor=false", "credential.helper=", "interactive.diffFilter=false",
	"commit.gpgSign=false", "tag.gpgSign=false", "log.showSignature=false", "merge.verifySignatures=false",
	"gpg.program=false", "gpg.openpgp.program=false", "gpg.x509.program=false", "gpg.ssh.program=false", "gpg.ssh.defaultKeyCommand=false",
	"gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "protocol.ext.allow=never", "protocol.file.allow=never",
	"submodule.recurse=false", "fetch.recurseSubmodules=false", "diff.external=", "log.mailmap=false",
	"i18n.commitEncoding=utf-8", "i18n.logOutputEncoding=utf-8", "index.sparse=false",
}

// unconverted are those with which git has files as they are. A checkout is as the repository
// has it.
var unconverted = []string{"core.autocrlf=false", "core.safecrlf=false"}

// environment is all that git has: nothing of the daemon's, nor of a service.
func (r *Repository) environment() []string {
	env := []string{
		"PATH=" + r.path, "HOME=/nonexistent", "LC_ALL=C", "GIT_DIR=" + r.Dir,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_GRAFT_FILE=" + os.DevNull,
		"GIT_EDITOR=false", "GIT_SEQUENCE_EDITOR=false", "GIT_PAGER=cat", "GIT_ASKPASS=false", "SSH_ASKPASS=false",
		"GIT_SSH_COMMAND=false", "GIT_SSH=false",
		"GIT_AUTHOR_NAME=tend healer", "GIT_AUTHOR_EMAIL=healer@tend.invalid", "GIT_COMMITTER_NAME=tend healer",
		"GIT_COMMITTER_EMAIL=healer@tend.invalid",
	}
	if r.checked {
		env = append(env, "GIT_WORK_TREE="+r.Top)
	}
	return append(env, r.off...)
}

// programs are the settings of which each may have a name of its own, as
// filter.NAME.smudge has, and what they are set to.
var programs = []struct{ form, value string }{
	{`^filter\..*\.(clean|smudge|process)$`, ""},
	{`^filter\..*\.required$`, "false"},
	{`^diff\..*\.(command|textconv)$`, ""},
	{`^merge\..*\.driver$`, "false"},
	{`^gpg\..*\.program$`, "false"},
	{`^credential\..*\.helper$`, ""},
	{`^trailer\..*\.(command|cmd)$`, ""},
	{`^pager\..*$`, "false"},
	{`^hook\..*\.command$`, "true"}, // a hook that fails stops git
	{`^remote\..*\.(promisor|uploadpack|receivepack)$`, "false"},
}

// overrides are the variables that set keys of the configuration. They come after its files.
func overrides(pairs [][2]string) []string {
	if len(pairs) == 0 {
		return nil
	}
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(pairs))}
	for i, p := range pairs {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, p[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, p[1]))
	}
	return env
}

// driverOf is the name in filter.NAME.smudge.
func driverOf(key string) string {
	_, rest, _ := strings.Cut(key, ".")
	return rest[:strings.LastIndexByte(rest, '.')]
}

func matches(form, key string) bool {
	is, err := regexp.MatchString(form, key)
	return err == nil && is
}
