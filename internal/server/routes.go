package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tend-run/tend/internal/protocol/module"
	where "github.com/tend-run/tend/internal/sandbox/route"
)

// routeTable is what the server knows of a request before its handler is called,
// by the pattern that the request matches.
type routeTable map[string]route

type route struct {
	module.Route
	name string // of the part
}

// of returns the route of a request; the zero route if none serves it, which
// is as strict as any.
func (rs routeTable) of(r *http.Request) route { return rs[r.Pattern] }

// mount puts the routes of all parts, and the server's own, on a mux.
func (s *Server) mount() (*http.ServeMux, error) {
	mux := http.NewServeMux()
	s.routes = routeTable{}
	for _, p := range append([]module.Part{probes{s}}, s.cfg.Parts...) {
		if p.Name() == "" {
			return nil, errors.New("server: a part has no name")
		}
		if !able(p) {
			return nil, fmt.Errorf("server: the part %s can do nothing; see internal/protocol/module for the methods that it may have", p.Name())
		}
		if c, ok := p.(prometheus.Collector); ok {
			if err := s.metrics.Register(c); err != nil {
				return nil, fmt.Errorf("metrics of part %s: %w", p.Name(), err)
			}
		}
		r, ok := p.(module.Router)
		if !ok {
			continue
		}
		err := module.Mount(mux, r, func(rt *module.Route) http.Handler {
			s.routes[rt.Pattern] = route{*rt, p.Name()}
			if rt.Secret != nil {
				s.secrets = append(s.secrets, rt.Secret)
			}
			if rt.Access == module.Bearer {
				return s.needsToken(rt.Handler)
			}
			return rt.Handler
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range s.cfg.Parts {
		if h, ok := p.(module.Hoster); ok {
			s.hosters = append(s.hosters, h)
			s.routes[hostPattern+p.Name()] = route{module.Route{Access: module.Own, Body: func(string) module.Body { return module.File }}, p.Name()}
		}
	}
	return mux, nil
}

// pageAPI is the part whose API the page calls.
const pageAPI = "native"

// hostPattern begins the pattern of requests that a module.Hoster answers. No mux has
// such a pattern.
const hostPattern = "host "

// able reports whether a part has any ability.
func able(p module.Part) bool {
	switch p.(type) {
	case module.Router, module.Hoster, module.Runner, module.Streamer, module.Reporter, io.Closer, prometheus.Collector:
		return true
	}
	return false
}

// routed notes, for all that looks at a request before its handler, which
// pattern it matches, and who answers it if no route does. The mux finds the same
// pattern again.
func (s *Server) routed(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		widenStack()
		if where.Inside(r.Context()) != "" {
			r = innerRequest(r)
			for _, p := range s.hosters { // a port of the server's own
				if h, _ := p.Hosts(r); h != nil {
					r.Pattern = hostPattern + p.Name()
					next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hostedKey{}, h)))
					return
				}
			}
			if _, r.Pattern = mux.Handler(r); !s.routes.of(r).Inside {
				r.Pattern = ""
				r = r.WithContext(context.WithValue(r.Context(), hostedKey{}, http.HandlerFunc(http.NotFound)))
			}
			next.ServeHTTP(w, r)
			return
		}
		_, r.Pattern = mux.Handler(r)
		if module.AtDoor(r.Context()) && !s.routes.of(r).Page && s.routes.of(r).name != pageAPI {
			r.Pattern = ""
			r = r.WithContext(context.WithValue(r.Context(), hostedKey{}, http.HandlerFunc(http.NotFound)))
			next.ServeHTTP(w, r)
			return
		}
		for _, p := range s.hosters {
			h, inside := p.Hosts(r)
			switch {
			case h != nil:
				r.Pattern = hostPattern + p.Name()
			case (inside || standingOf(r) == asSandbox) && !s.routes.of(r).Inside:
				h, r.Pattern = http.HandlerFunc(http.NotFound), ""
			default:
				continue
			}
			r = r.WithContext(context.WithValue(r.Context(), hostedKey{}, h))
			break
		}
		if standingOf(r) == asAPI && s.routes.of(r).Page {
			r = r.WithContext(context.WithValue(r.Context(), hostedKey{}, http.HandlerFunc(http.NotFound)))
			r.Pattern = ""
		}
		next.ServeHTTP(w, r)
	})
}

type hostedKey struct{}

// dispatch calls what answers a request.
func (s *Server) dispatch(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.routes.of(r).name == "" {
			s.metrics.Refused("route")
		}
		if h, ok := r.Context().Value(hostedKey{}).(http.Handler); ok {
			h.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
