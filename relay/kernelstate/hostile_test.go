package kernelstate

import (
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/hostilevm"
)

func TestUntrustedReportDownloadsNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"state-passwd": ErrUntrustedReport, "state-outside": ErrUntrustedReport, "state-name": ErrUntrustedReport, "state-terabyte": ErrUntrustedReport,
		"state-size": transfer.ErrUnexpected, "state-digest": transfer.ErrUnexpected, "state-list": nil, // the answer is too long
	} {
		t.Run(name, func(t *testing.T) {
			vm := hostilevm.Start(t, name)
			transport := http.DefaultTransport.(*http.Transport).Clone()
			t.Cleanup(transport.CloseIdleConnections)
			c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret, Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			s, err := Save(t.Context(), c, dir, Options{Name: "s", Until: time.Now().Add(time.Minute)})
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%+v, %v", s, err)
			}
			if n := vm.Count("GET " + contract.PathContent); n > 0 {
				t.Errorf("%d parts were downloaded", n)
			}
			walked := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && strings.Contains(e.Name(), dataFile) {
					t.Errorf("%s exists", path)
				}
				return err
			})
			if walked != nil {
				t.Error(walked)
			}
		})
	}
}
