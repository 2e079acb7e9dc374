package server

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/tend-run/tend/driver/host"
	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/face/envd"
	"github.com/tend-run/tend/face/envd/envdfs"
	"github.com/tend-run/tend/face/langsmith"
	"github.com/tend-run/tend/face/native"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
)

// mount puts every face and the server's own paths on the mux: the place to
// add a face.
func (s *Server) mount(mux *http.ServeMux) error {
	var err error
	s.envd, err = envd.New(envd.Config{
		Manager:        s.manager,
		DefaultUser:    s.cfg.DefaultUser,
		DefaultWorkdir: s.cfg.DefaultWorkdir,
		Token:          face.Token(s.cfg.Token),
		Guard:          face.Guard{Off: s.cfg.Insecure},
		Store:          settingsIn(s.cfg.StateDir),
		Log:            s.log,
	})
	if err != nil {
		return err
	}
	s.files = envdfs.New(envdfs.Config{
		Token:          s.envd.AccessToken,
		DefaultUser:    s.envd.DefaultUser,
		DefaultWorkdir: s.envd.DefaultWorkdir,
		Log:            s.log,
	})
	if err := s.envd.Register(mux); err != nil {
		return fmt.Errorf("mount envd: %w", err)
	}
	files := http.NewServeMux()
	s.files.Register(files)
	for _, path := range []string{"/files", "/files/", "/filesystem.Filesystem/"} {
		mux.Handle(path, s.envd.Wrap(files))
	}
	api := http.NewServeMux()
	err = native.New(native.Config{
		Manager: s.manager,
		Status:  s.status, Upgrade: s.upgrade, Shutdown: s.shutdown,
		Stopping: s.leaving,
		Instance: rand.Text(), Version: s.cfg.Version, Held: s.cfg.Held,
	}).Register(api)
	if err != nil {
		return fmt.Errorf("mount the native API: %w", err)
	}
	for _, service := range []string{tendv1connect.ProcessServiceName, tendv1connect.ViewServiceName, tendv1connect.AdminServiceName} {
		mux.Handle("/"+service+"/", s.needsToken(api))
	}
	if err := s.mountSandboxes(mux); err != nil {
		return err
	}
	mux.HandleFunc("GET /-/healthz", healthz)
	mux.HandleFunc("GET /-/readyz", s.readyz)
	mux.Handle("GET /-/metrics", s.needsToken(s.metrics.Handler()))
	return nil
}

// mountSandboxes puts the control planes on the mux, over one driver.
func (s *Server) mountSandboxes(mux *http.ServeMux) error {
	var err error
	s.boxes, err = host.Open(host.Config{
		Dir: filepath.Join(s.cfg.StateDir, "boxes"), Top: s.cfg.StateDir, Manager: s.manager, DefaultUser: s.cfg.DefaultUser, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.langsmith, err = langsmith.New(langsmith.Config{
		Driver: s.boxes, Manager: s.manager, Token: s.token, Trusted: trusted,
		Dir: filepath.Join(s.cfg.StateDir, "langsmith"), Budget: s.budget, Log: s.log,
	})
	if err != nil {
		return err
	}
	if err := s.langsmith.Register(mux); err != nil {
		return fmt.Errorf("mount langsmith: %w", err)
	}
	return nil
}
