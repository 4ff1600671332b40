package bootstrap

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
)

// showsOnPage runs a cell in a notebook's page, whose Secrets it may ask for.
func (e *enrollee) showsOnPage(cell string, err error) (Report, *page, error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cell = cell
	out, p := e.runPage()
	e.shownAt = append(e.shownAt, cell, out)
	r, err := ReadEnrollment(e.offer.JobID(), out)
	return r, p, err
}

// prepared returns the start cell for a tunnel.
func (e *enrollee) prepared(tunnel string) (string, error) {
	return EnrollStart(e.release, Start{Job: e.offer.JobID(), RelayKey: e.offer.PublicKey(), Tunnel: tunnel})
}

func TestATokenInColabsSecretsReachesNgrokAndNothingElse(t *testing.T) {
	tier.Long(t)
	r, _ := realRelease(t)
	edge := ngroktest.Start(t)
	e := newEnrollee(t, r)
	e.env["COLAB_RELAY_NGROK_SERVER"], e.env["COLAB_RELAY_NGROK_CA"] = edge.Addr, edge.CAFile
	token, secret := "2abc"+rand.Text(), auth.GenerateSecret()
	page := map[string]pageSecret{"NGROK_AUTHTOKEN": granted(" " + token + "\n")}
	e.onColab(page)

	started, p, err := e.showsOnPage(e.prepared(TunnelSecrets))
	if err != nil || started.Tunnel != TunnelNgrok || !slices.Equal(p.asked, []string{"NGROK_AUTHTOKEN"}) {
		t.Fatalf("the cell reports %+v, %v; the page was asked for %q", started, err, p.asked)
	}
	e.pid()
	delete(e.env, "PAGE_SECRETS") // from here on the test's own page must not show it
	finished, err := e.finish(started.Key, enrollment.Grant{Secret: secret.Reveal(), Tunnel: started.Tunnel})
	if err != nil || e.offer.Check(*finished.Answer) != nil || finished.Answer.URL != edge.URL() {
		t.Fatalf("the finish cell reports %+v, %v", finished.Answer, err)
	}
	if got := edge.Auths()[0].Extra.Authtoken; got != token {
		t.Errorf("ngrok saw the token %q", got)
	}
	e.hidesSecrets(secret.Reveal(), token)
}

// fakeCloudflared prints what cloudflared prints once its tunnel is up.
const fakeCloudflared = `#!/bin/sh
echo "2023-04-18T14:06:49Z INF |  https://a-quick-one.trycloudflare.com  |" >&2
echo "2024-02-08T06:25:48Z INF Registered tunnel connection connIndex=0 ip=198.41.192.167" >&2
exec tail -f /dev/null
`

// withCloudflared makes the start cell fetch text as cloudflared, if its digest is wanted.
func (e *enrollee) withCloudflared(cell, text, wanted string) string {
	e.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/cloudflared-"+strings.TrimPrefix(asset, "executor-") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	e.t.Cleanup(server.Close)
	return strings.NewReplacer(cloudflaredURL, server.URL, cloudflaredAMD64, digestOf(wanted), cloudflaredARM64, digestOf(wanted)).Replace(cell)
}

func TestACloudflaredThatIsNotThePinnedOneIsNotUsed(t *testing.T) {
	r, _ := serveEnding(t, digestOf(ends))
	e := newEnrollee(t, r)
	cell, err := e.prepared(TunnelSecrets)
	_, err = e.shows(e.withCloudflared(cell, "#!/bin/sh\ntouch ran\n", fakeCloudflared), err)
	if err == nil || !strings.HasPrefix(err.Error(), "no cloudflared: http://") || !strings.Contains(err.Error(), "its SHA-256 differs") ||
		!strings.HasSuffix(err.Error(), "; add NGROK_AUTHTOKEN to Colab's Secrets (the key on the left), or set it where the relay runs") {
		t.Errorf("the cell reports %v", err)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "ran")); err == nil {
		t.Error("it was run")
	}
}
