package tunnel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// ParseCIDR reads an address range such as 203.0.113.0/24, or one address.
func ParseCIDR(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q: want an address or a range, such as 203.0.113.7 or 203.0.113.0/24", text)
	}
	return prefix.Masked(), nil
}

// Restrict answers 403 to visitors from elsewhere before anything of their
// request is looked at. This machine itself is always let in at --listen, and
// so is everybody where the list is empty. A visitor whose address the tunnel
// did not tell is from elsewhere.
func Restrict(allowed []netip.Prefix, next http.Handler) http.Handler {
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		addr, tunnelled := visitorOf(req)
		if !tunnelled {
			addr = hostOf(req.RemoteAddr)
		}
		if !tunnelled && addr.IsLoopback() || contains(allowed, addr) {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "this address is not let in (--allow-cidr)", http.StatusForbidden)
	})
}

func contains(allowed []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range allowed {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// trafficPolicy is what has ngrok itself turn visitors from elsewhere away, so
// that they cost none of the account's requests.
func trafficPolicy(allowed []netip.Prefix) (string, error) {
	type ranges struct {
		Enforce bool           `json:"enforce"`
		Allow   []netip.Prefix `json:"allow"`
	}
	type action struct {
		Type   string `json:"type"`
		Config ranges `json:"config"`
	}
	type rule struct {
		Actions []action `json:"actions"`
	}
	policy, err := json.Marshal(map[string][]rule{
		"on_tcp_connect": {{Actions: []action{{Type: "restrict-ips", Config: ranges{true, allowed}}}}},
	})
	if err != nil {
		return "", fmt.Errorf("write ngrok's traffic policy: %v", err)
	}
	return string(policy), nil
}
