"""Login by an OAuth 2 or OpenID Connect provider, as a university has one: OAuthenticator 17.4.

    containers/launch hub --login oauth --class names.txt

The names of the class list, and no others, may log in; the provider says who somebody is, so nobody needs a password.
With the provider register the address https://HUB/hub/oauth_callback. What it gives you, write into login.json in the
class's state folder, for your eyes only (mode 600):

    {"client_id": "…", "client_secret": "…",
     "authorize_url": "https://login.example.org/authorize", "token_url": "https://login.example.org/token",
     "userdata_url": "https://login.example.org/userinfo",
     "callback_url": "https://hub.example.org/hub/oauth_callback",
     "username_claim": "campus_id"}

`username_claim` is what the provider calls the name that stands in the class list. Choose a claim that its owner cannot
change and that is never given to somebody else: a campus id, or `sub`. What users may edit, as `preferred_username`
often is, lets them log in as another name of the class. Optional: "scope" (default ["openid"]) and "login_service",
what the button says.
"""

from class_list import read_class
from jupyterhub.user import User
from login_file import read_login
from oauthenticator.generic import GenericOAuthenticator

REQUIRED = {  # in login.json → OAuthenticator's name
    **{name: name for name in ("client_id", "client_secret", "authorize_url", "token_url", "userdata_url")},
    "callback_url": "oauth_callback_url",
    "username_claim": "username_claim",
}
login = read_login(state, REQUIRED)  # noqa: F821
class_file = state / "class.json"  # noqa: F821


class ClassOAuthenticator(GenericOAuthenticator):
    """Lets the names of the class list in, and ends the session of who is no longer there."""

    def validate_username(self, username: str) -> bool:
        """Whether this name can log in."""
        return super().validate_username(username) and username in read_class(class_file)

    async def refresh_user(self, user: User, handler: object = None, **_: object) -> bool:
        """Whether a session goes on."""
        return user.name in read_class(class_file)


c.JupyterHub.authenticator_class = ClassOAuthenticator  # noqa: F821
c.ClassOAuthenticator.update({trait: login[name] for name, trait in REQUIRED.items()})  # noqa: F821
c.ClassOAuthenticator.scope = login.get("scope", ["openid"])  # noqa: F821
c.ClassOAuthenticator.login_service = login.get("login_service", "your university's login")  # noqa: F821
