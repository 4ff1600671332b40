package tunnel

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ParseCIDR reads an address range such as 203.0.113.0/24, or a single address.
func ParseCIDR(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q: must be an address or a range, such as 203.0.113.7 or 203.0.113.0/24", text)
	}
	return prefix.Masked(), nil
}

// Restrict answers 403 to visitors outside the allowed ranges before it reads
// anything else of the request. An empty list allows everybody. Requests from
// this machine to --listen are always allowed. A visitor whose address the
// tunnel did not report is refused.
func Restrict(allowed []netip.Prefix, next http.Handler) http.Handler {
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		addr, tunnelled := visitorOf(req)
		if !tunnelled {
			addr = hostOf(req.RemoteAddr)
		}
		inRange := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
		if !tunnelled && addr.IsLoopback() || slices.ContainsFunc(allowed, inRange) {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "this address is not allowed (--allow-cidr)", http.StatusForbidden)
	})
}
