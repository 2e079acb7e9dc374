package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

type uiCmd struct {
	Print       bool `help:"Print the URL and open no browser."`
	ReadOnly    bool `name:"read-only" help:"Create a read-only login for a colleague: it sees everything and changes nothing. Values of environments and files are not shown."`
	EndReadOnly bool `name:"end-read-only" help:"End all read-only logins at once, with what they have opened, and make links for them void."`
}

// uiFacts is the JSON of "tend ui".
type uiFacts struct {
	URL    string `json:"url"`
	Opened bool   `json:"opened"`
}

// uiEnded is the JSON of "tend ui --end-read-only".
type uiEnded struct {
	Ended int `json:"ended"`
}

func (c *uiCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.EndReadOnly {
		n, err := d.EndReadOnlyLogins(ctx)
		if err != nil {
			return err
		}
		return inv.answer(printJSON, uiEnded{n}, fmt.Sprintf("ended: %d read-only", n))
	}
	open := d.OpenPage
	if c.ReadOnly {
		open = d.OpenPageReadOnly
	}
	page, err := open(ctx)
	if err != nil {
		return err
	}
	url := page.URL
	switch {
	case !d.local:
		// As this machine reaches it; the daemon may know another name of itself.
		url = strings.TrimSuffix(d.url, "/") + "/ui/"
	case url == "":
		return errors.New("this daemon is older than this program, and listens only on its socket, which no browser can open; run tend upgrade, which ends no process")
	}
	if page.Code != "" {
		url += "#code=" + page.Code
	}
	opened := false
	if _, ok := terminalOf(inv.out); ok && !c.Print {
		opened = openBrowser(url) == nil
	}
	return inv.answer(printJSON, uiFacts{url, opened}, url)
}

// openBrowser shows a URL that may log in. Other users see the arguments of
// programs: those get the name of a file that leads there, which is the user's alone.
func openBrowser(url string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "tend")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(dir, "open.html")
	to := html.EscapeString(url)
	text := fmt.Sprintf("<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=%s\"><title>tend</title><a href=\"%s\">Open the page of tend</a>\n", to, to)
	if err := atomicfile.File(file, []byte(text), 0o600); err != nil {
		return err
	}
	switch runtime.GOOS {
	case "darwin":
		return exec.Command("open", file).Start()
	case "windows":
		return exec.Command("rundll32", "url.dll,FileProtocolHandler", file).Start()
	}
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return errors.New("there is no screen")
	}
	return exec.Command("xdg-open", file).Start()
}
