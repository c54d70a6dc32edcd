// Sockets of the job's store: listening, connecting, and messages of a length and bytes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/comm/job_store.h"

namespace moonshard::comm {

using StoreDeadline = std::chrono::steady_clock::time_point;

/// A listening socket; `place` gets the port that was taken. Throws IoError.
Descriptor listen_at(StorePlace& place);

/// A connected socket, or none and the system's reason.
Descriptor connect_to(const StorePlace& place, std::string& reason);

/// True when the other end of a Unix socket is of this user; always for TCP.
bool is_own_user(int socket);

/// Throws IoError when the other side closes or the deadline passes. Never raises SIGPIPE.
void send_all(int socket, std::string_view bytes, StoreDeadline deadline);
std::string receive(int socket, size_t bytes, StoreDeadline deadline);

// A message: its size in four bytes, then fields, each with its size in four bytes.
inline constexpr size_t kMaxStoreMessage = 64 << 20;
std::string pack(const std::vector<std::string_view>& fields);
/// Without the leading size. Nothing when the sizes do not agree: the bytes are untrusted.
std::optional<std::vector<std::string>> unpack(std::string_view body);
uint32_t size_field(std::string_view bytes);

// Both sides prove the token: the server sends greeting and nonce, the client its nonce and proof,
// the server its own proof.
inline constexpr std::string_view kGreeting = "moonshard store 2\n";
inline constexpr size_t kNonceBytes = 32, kProofBytes = 64;
std::string make_nonce();
std::string proof_of(std::string_view side, const std::string& token, std::string_view server_nonce,
                     std::string_view client_nonce);
/// In a time that does not depend on where they differ.
bool equal_proofs(std::string_view a, std::string_view b);

}  // namespace moonshard::comm
