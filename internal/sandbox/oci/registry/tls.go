package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxCertificate bounds a file of certificates, in bytes.
const maxCertificate = 1 << 20

// tls trusts what the machine trusts, and the certificates of a host beside it.
func (c *Config) tls(host string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, dir := range c.Certificates {
		files, err := filepath.Glob(filepath.Join(dir, filepath.Base(host), "*.crt"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || info.Size() > maxCertificate {
				return nil, errors.Join(fmt.Errorf("certificate of the registry %s: %s cannot be used", host, file), err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("certificate of the registry %s: %w", host, err)
			}
			if conf.RootCAs == nil {
				if conf.RootCAs, err = x509.SystemCertPool(); err != nil {
					return nil, err
				}
			}
			if !conf.RootCAs.AppendCertsFromPEM(b) {
				return nil, fmt.Errorf("certificate of the registry %s: %s has none in PEM", host, file)
			}
		}
	}
	return conf, nil
}
