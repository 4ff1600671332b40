package vm

import (
	"fmt"
	"slices"
	"strings"
)

// Way is how the relay reaches the executor on a VM.
type Way string

// Ways.
const (
	AnyWay      Way = ""            // the first that works
	Proxy       Way = "proxy"       // Google's proxy, if the backend offers it
	Ngrok       Way = "ngrok"       // a tunnel of the user's account
	Cloudflared Way = "cloudflared" // a tunnel without an account, by a program on the VM
)

// Ways are all that a person may ask for.
var Ways = []Way{Proxy, Ngrok, Cloudflared}

// ParseWay reads one of Ways; empty is AnyWay.
func ParseWay(text string) (Way, error) {
	if w := Way(text); w == AnyWay || slices.Contains(Ways, w) {
		return w, nil
	}
	return AnyWay, fmt.Errorf("tunnel %q: use proxy, ngrok or cloudflared", clip(text))
}

// checkWay returns an error before a VM is asked for that nothing could reach.
func (m *Manager) checkWay(b Backend, w Way) error {
	_, proxied := b.(Proxied)
	switch {
	case w == Proxy && !proxied:
		return fmt.Errorf("%w: the backend %s offers no proxy", ErrNoTunnel, b.Name())
	case w == Ngrok && m.cfg.NgrokToken == "":
		return fmt.Errorf("%w: NGROK_AUTHTOKEN is not set", ErrNoTunnel)
	case w == AnyWay && !proxied && m.cfg.NgrokToken == "":
		return fmt.Errorf("%w: NGROK_AUTHTOKEN is not set, and the backend %s offers no proxy", ErrNoTunnel, b.Name())
	}
	return nil
}

// ways returns what to try in turn on a VM.
func (a *creation) ways(v vmReport) ([]Way, error) {
	if a.request.Way != AnyWay {
		if a.request.Way == Cloudflared && !v.Cloudflared {
			return nil, fmt.Errorf("%w: the VM has no program cloudflared", ErrNoTunnel)
		}
		return []Way{a.request.Way}, nil
	}
	var ways []Way
	if _, ok := a.b.(Proxied); ok {
		ways = append(ways, Proxy)
	}
	if a.cfg.NgrokToken != "" {
		ways = append(ways, Ngrok)
	}
	if v.Cloudflared {
		ways = append(ways, Cloudflared)
	}
	return ways, nil
}

// flags are the executor's, for this way.
func (m *Manager) flags(w Way) []string {
	switch {
	case w == Proxy:
		return []string{"--tunnel", "none"}
	case w == Ngrok && m.cfg.NgrokDomain != "":
		return []string{"--tunnel", "ngrok", "--domain", m.cfg.NgrokDomain}
	}
	return []string{"--tunnel", string(w)}
}

// acceleratorsText names what a accelerators asks for.
func acceleratorsText(accelerators []string, highRAM bool) string {
	text := strings.Join(accelerators, ",")
	if highRAM {
		text += " with high RAM"
	}
	return text
}
