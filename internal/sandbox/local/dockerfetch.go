package local

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// fetchTimeout bounds the fetch of a file by ADD.
const fetchTimeout = 30 * time.Minute

// fetch gets a file for ADD. It may come from where a sandbox may go: it is the Dockerfile that
// names it, not the owner of the machine.
func (s *stage) fetch(ctx context.Context, address, checksum string) (_ *oneFile, done func(), err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%.200s: %w", address, err)
		}
	}()
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	name := path.Base(path.Clean("/" + u.Path))
	if name == "/" {
		name = ""
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, ControlContext: func(_ context.Context, _, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		return s.d.out.May(netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
	}}
	t := &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute,
		MaxResponseHeaderBytes: 256 << 10, ForceAttemptHTTP2: true, DisableCompression: true}
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	dir, err := s.f.temp()
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Create(path.Join(dir, "fetched"))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	sum, most := sha256.New(), roomToCopy(s.d.cfg.State)
	if most == 0 {
		most = 1 << 62
	}
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, nil, err
	}
	if n == most {
		return nil, nil, fmt.Errorf("it has more than the %d bytes that are free: %w", most, driver.ErrLimit)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); checksum != "" && !strings.EqualFold(checksum, got) {
		return nil, nil, fmt.Errorf("its checksum is %s, and --checksum says %.100s", got, checksum)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Mode: 0o600, Size: n}
	if at, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		h.ModTime = at
	}
	return &oneFile{name, h, f}, func() { _ = f.Close() }, nil
}
