package config

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
)

// maxSandbox bounds the name of a sandbox, in bytes.
const maxSandbox = 128

// checkSandbox finds what is wrong with where a service runs, and with what it asks for
// that cannot be had there. A service that names no sandbox has that of the file.
func (d *decoder) checkSandbox(c *Config, s *Service, at string) {
	place := at + ".sandbox"
	switch {
	case d.given(at + ".image"):
		if place = at + ".image"; !d.checkImage(s, at) {
			return
		}
	case !d.given(place) && d.given("sandbox"):
		s.Sandbox, place = c.Sandbox, "sandbox"
	}
	switch {
	case !d.given(place):
		return
	case s.Sandbox == "":
		// Not the machine: what is filled in by a template may have been left empty.
		d.failOnce(place, "is empty; give the name or ID of a sandbox, or leave it out")
		return
	case len(s.Sandbox) > maxSandbox || strings.Trim(strings.ToLower(s.Sandbox), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" ||
		strings.ContainsAny(s.Sandbox[:1], "-_."):
		d.failOnce(place, fmt.Sprintf("is %.80q, which is no name and no ID of a sandbox; tend sandbox ls shows them", s.Sandbox))
		return
	}
	if s.Cwd != "" && !path.IsAbs(s.Cwd) {
		d.failAt(at+".cwd", fmt.Sprintf("is %.80q; give an absolute path, as it is inside the sandbox", s.Cwd))
	}
	if len(s.Sockets) > 0 {
		d.failAt(at+".sockets", "cannot be passed into a sandbox; leave them out, and let the program listen by itself")
	}
	switch {
	case s.Inherit != "all":
	case d.given(at + ".inherit"):
		d.failAt(at+".inherit",
			"is all; the environment of tend up means nothing in a sandbox: leave it out, and give what is needed by env or env_file")
	default:
		s.Inherit = ""
	}
	for key, p := range map[string]*Probe{"health": s.Health, "startup": s.Startup, "readiness": s.Readiness, "liveness": s.Liveness} {
		if p == nil {
			continue
		}
		field, address := at+"."+key+".tcp", string(p.TCP)
		if p.HTTP != nil {
			field, address = at+"."+key+".http", p.HTTP.URL.Address()
		}
		if address != "" && !isLoopback(address) {
			d.failAt(field, fmt.Sprintf("is for %s; of a sandbox localhost, 127.0.0.1 and [::1] can be asked, each of which is its own", address))
		}
	}
}

// maxImage bounds the name of an image, in bytes.
const maxImage = 512

// checkImage finds what is wrong with the image of a service, and says where it runs: in a
// sandbox of its own, whose name the server completes ([Service.SetImage]).
func (d *decoder) checkImage(s *Service, at string) bool {
	switch {
	case d.given(at + ".sandbox"):
		d.failAt(at+".image", "is given together with sandbox; a service of an image has a sandbox of its own, so leave one of them out")
	case s.Image == "":
		d.failAt(at+".image", "is empty; give the name of an image, such as python:3, or leave it out")
	case len(s.Image) > maxImage || strings.ContainsFunc(s.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		d.failAt(at+".image", fmt.Sprintf("is %.80q; write [HOST/]PATH[:TAG], such as python:3, or an ID of tend image ls", s.Image))
	default:
		s.Sandbox = ImagePrefix + s.Name
	}
	return s.Sandbox != ""
}

// ImagePrefix begins the names of the sandboxes that are made for services with an image.
const ImagePrefix = "service-"

// SetImage completes what a service with an image runs: in which sandbox, which another image
// has another one of, and what the image starts.
func (s *Service) SetImage(id string, entrypoint, cmd []string) error {
	hex := strings.TrimPrefix(id, "sha256:")
	s.Sandbox = ImagePrefix + strings.ReplaceAll(s.Name, "/", "-") + "-" + hex[:min(len(hex), 12)]
	if s.Command.Line != "" {
		return nil // its /bin/sh is in the place of both
	}
	if len(s.Command.Argv) > 0 {
		cmd = s.Command.Argv
	}
	if s.Command.Argv = slices.Concat(entrypoint, cmd); len(s.Command.Argv) == 0 {
		_, short := SplitName(s.Name)
		return &process.InvalidError{Field: "services." + short + ".command",
			Reason: fmt.Sprintf("is missing, and the image %.200s says nothing of what to start", s.Image)}
	}
	return nil
}

// checkHealed finds what is wrong with a healer for a service in a sandbox. The project is where
// the service works, if nothing else is said.
func (d *decoder) checkHealed(c *Config) {
	h, s := c.Healer, c.Services[c.Target()]
	if s.Cwd == "" {
		d.failAt("services."+c.Target()+".cwd",
			"is missing; a service that is repaired in a sandbox needs it: the absolute path of its directory inside")
	}
	switch {
	case !d.given("healer.root"):
		h.Root = s.Cwd
	case !path.IsAbs(h.Root):
		d.failAt("healer.root", fmt.Sprintf("is %.80q; give an absolute path, as it is inside the sandbox", h.Root))
	}
}

// failOnce is failAt for a value that several services have.
func (d *decoder) failOnce(path, text string) {
	for _, p := range d.problems {
		if p.Path == path {
			return
		}
	}
	d.failAt(path, text)
}

// isLoopback reports whether HOST:PORT is reached through the loopback.
func isLoopback(address string) bool {
	host := address[:strings.LastIndexByte(address, ':')]
	return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == "0.0.0.0" || host == "[::]"
}
