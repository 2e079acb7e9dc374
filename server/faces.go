package server

import (
	"fmt"
	"net/http"

	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/face/envd"
	"github.com/tend-run/tend/face/envd/envdfs"
)

// mount puts every face and the server's own paths on the mux. A new face is
// one more line in the list.
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
	for _, f := range []face.Face{s.envd} {
		if err := f.Register(mux); err != nil {
			return fmt.Errorf("mount %s: %w", f.Name(), err)
		}
	}
	files := http.NewServeMux()
	s.files.Register(files)
	for _, path := range []string{"/files", "/files/", "/filesystem.Filesystem/"} {
		mux.Handle(path, s.envd.Wrap(files))
	}
	mux.HandleFunc("GET /-/healthz", healthz)
	mux.HandleFunc("GET /-/readyz", s.readyz)
	mux.Handle("GET /-/metrics", s.needsToken(s.metrics.Handler()))
	return nil
}
